"""The Lua script, called directly: its steps, its verdicts and the states that it leaves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import redis
from asgi_ratelimit.stores.redis.script_encoding import Action, encode

from asgi_ratelimit.algorithms import State, pack, unpack
from asgi_ratelimit.decision import Charge

SCRIPT = files("asgi_ratelimit.stores.redis").joinpath("rate_limit.lua").read_text("utf-8")
NOW_US = 1_800_000_000_000_000
BIRTHS = 7 * 2**32


def constant(name: str) -> int:
    """A number that the script defines."""
    found = re.search(rf"^local {name} = (\d+)", SCRIPT, re.MULTILINE)
    assert found, name
    return int(found[1])


COUNTING = """
local calls, uncounted, math = 0, math, {}
for name, value in pairs(uncounted) do
  math[name] = type(value) ~= 'function' and value or function(...)
    calls = calls + 1
    if calls > 1000000 then error('a loop that never ends') end
    return value(...)
  end
end
"""
"""Lua that counts the calls of all functions of ``math``, which every loop of the script makes."""


@dataclass
class Reply:
    """What the script did: its steps, and one verdict for each action that it carried out."""

    steps: int
    verdicts: str


class DirectScript:
    """The script on one Redis, at one time, under one prefix."""

    def __init__(self, client: redis.Redis, *, prefix: bytes = b"rl", counts_calls: bool = False) -> None:
        self.client, self.prefix = client, prefix
        text = SCRIPT
        if counts_calls:
            assert text.rstrip().endswith("return reply")
            text = (
                COUNTING
                + text.rstrip().removesuffix("return reply")
                + "reply[1] = 'mark 0 ' .. calls .. ' ' .. table.concat(verdicts)\nreturn reply\n"
            )
        self._sha = client.script_load(text)

    def call(self, actions: Sequence[Action], now_us: int = NOW_US, births: int = BIRTHS) -> Reply:
        """Carry out actions in one call."""
        keys, quotas, packed = encode(self.prefix, actions)
        reply = self.client.evalsha(
            self._sha, len(keys), *keys, quotas, packed, b"%d" % now_us, 3_600_000, births, b"mark "
        )
        mark, _, steps, verdicts = reply[0].decode().split(" ")
        assert mark == "mark"
        return Reply(int(steps), verdicts)

    def put(self, charge: Charge, state: State) -> None:
        """Store a state as that of the bucket of a charge."""
        self.client.set(self._key(charge), pack(charge.quota, state))

    def put_all(self, states: Sequence[tuple[Charge, State]]) -> None:
        """``put`` for many, in one go."""
        self.client.mset({self._key(charge): pack(charge.quota, state) for charge, state in states})

    def put_values(self, values: Sequence[tuple[Charge, bytes]]) -> None:
        """Store values as those of the buckets of charges."""
        self.client.mset({self._key(charge): value for charge, value in values})

    def value(self, charge: Charge) -> bytes | None:
        """The value of the bucket of a charge."""
        value: bytes | None = self.client.get(self._key(charge))
        return value

    def state(self, charge: Charge) -> State | None:
        """The state of the bucket of a charge."""
        return unpack(charge.quota, self.value(charge))

    def _key(self, charge: Charge) -> bytes:
        return self.prefix + b":" + charge.bucket.encode()
