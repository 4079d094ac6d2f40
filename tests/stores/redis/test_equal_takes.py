"""Takes of one batch that are equal but for their keys: prepared once, and decided as if each came alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from asgi_ratelimit.stores.redis.script_encoding import Action, Reset
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.algorithms import State
from asgi_ratelimit.decision import Charge, Take
from asgi_ratelimit.quotas import FixedWindow, Quota, TokenBucket
from tests.support.direct_script import NOW_US, DirectScript
from tests.support.examples import up_to
from tests.support.histories import without_generation
from tests.support.redis_server import RedisServer

NOW = float(NOW_US)
SHORT, LONG, WINDOW = TokenBucket(3, 1, name="short"), TokenBucket(5, 60, name="long"), FixedWindow(4, 60, "window")
STATES: dict[str, State | None] = {
    "new": None,
    "used": (1e6, NOW - 5, 7, (), (), b""),
    "used up": (3e6, NOW - 5, 7, (), (), b""),
    "gaps": (9e6, NOW - 5, 7, ((5e6, 1e6), (7e6, 1e6)), (), b""),
}


@pytest.fixture(scope="module")
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as made:
        yield made


def charges(quotas: tuple[Quota, ...], key: str) -> tuple[Charge, ...]:
    return tuple([Charge(quota, key) for quota in quotas])


KEYS = st.sampled_from(["a", "b", "c"])
TAKES = st.builds(
    lambda quotas, key, max_wait, may_settle: Take(charges(quotas, key), max_wait, may_settle=may_settle),
    st.sampled_from([(SHORT,), (SHORT, LONG), (SHORT, LONG), (SHORT, WINDOW), (WINDOW,)]),
    KEYS,
    st.sampled_from([0.0, 0.0, 0.5]),
    st.booleans(),
)
RESETS = st.builds(lambda key: Reset((Charge(LONG, key),)), KEYS)
STATES_OF_KEYS = st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([*STATES])))
ACTIONS = st.tuples(TAKES | RESETS, st.integers(1, 4)).map(lambda each: [each[0]] * each[1])


@given(
    st.lists(ACTIONS, min_size=1, max_size=6), st.fixed_dictionaries(dict.fromkeys("abc", st.sampled_from([*STATES])))
)
@up_to(600)
def test_one_call_does_what_one_call_for_each_does(
    client: redis.Redis, runs: list[list[Action]], names: dict[str, str]
) -> None:
    """Whatever the states, also where some of the equal ones need the general way, and others follow them."""
    client.flushall()
    actions = [action for run in runs for action in run]
    together, alone = DirectScript(client, prefix=b"together"), DirectScript(client, prefix=b"alone")
    for script in (together, alone):
        states = [(Charge(SHORT, key), STATES[name]) for key, name in names.items()]
        for charge, state in states:
            if state is not None:
                script.put(charge, state)
    assert together.call(actions).verdicts == "".join([alone.call([action]).verdicts for action in actions])
    for charge in [Charge(quota, key) for quota in (SHORT, LONG, WINDOW) for key in "abc"]:
        assert without_generation(together.state(charge)) == without_generation(alone.state(charge))


def test_equal_takes_are_prepared_once(client: redis.Redis) -> None:
    """Those of two charges on keys of their own need far fewer calls of functions than others."""
    client.flushall()
    script = DirectScript(client, counts_calls=True)
    equal = [Take(charges((SHORT, LONG), str(number))) for number in range(64)]
    others = [Take(charges((SHORT, LONG)[:: 1 - number % 2 * 2], str(number))) for number in range(64)]
    assert script.call(equal).steps < 20 < 100 < script.call(others).steps
