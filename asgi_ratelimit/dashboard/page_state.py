"""What the page shows, as JSON: the summary, the overrides, and their history; and the actions of its forms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool

from ..buckets import bucket
from ..clock import monotonic_us
from ..decision import Charge
from ..inbound.penalties import Blocks
from ..overrides import Change, Override, Overrides, quotas_under
from ..quota_text import RESERVED_NAMES, as_quotas, parse_period
from ..quotas import Quota
from ..stores import Store, reset
from ..stores.base import owned
from .access import KeyNames
from .summaries import KeyCounts, Summaries, Summary, estimate

# The most keys, and the most changes, that are shown.
SHOWN = 20

# The most keys that are looked at for a block: those of actions, and the most refused ones.
MOST_BLOCKS = 64
# The state is read again once it is older than this, however many pages show it.
REREAD_US = 250_000.0

Fields: TypeAlias = Mapping[str, str]
# The names of the forms.
ACTIONS = ("set", "unset", "reset", "block", "lift")

_NO_PENALTY = 'has no Penalty, and so checks for no blocks: Rule(..., penalty=Penalty("10 minutes", after=5))'


class PageState:
    """The state that all open pages show, read once for all of them. Keys are shown only with ``show_keys``."""

    def __init__(self, store: Store, *, show_keys: bool) -> None:
        self._store = store
        self._overrides = Overrides(store)
        self._names = KeyNames(store)
        self._show_keys = show_keys
        self._summaries = Summaries(store)
        self._summary: Summary | None = None
        self.as_json: dict[str, Any] = {}
        self._read_us = -REREAD_US
        self._lock = asyncio.Lock()

    async def read(self, *, is_fresh: bool = False) -> Summary:
        """The summary, after which ``as_json`` is the state; ``is_fresh``: both are read now. Raises ``StoreError``."""
        async with self._lock:
            if is_fresh or self._summary is None or monotonic_us() - self._read_us >= REREAD_US:
                await self._names.agree()
                self._summary = await self._summaries.read()
                self.as_json = await self._as_json(self._summary)
                self._read_us = monotonic_us()
            return self._summary

    async def what_if(self, name: str, quotas: Sequence[Quota]) -> dict[str, Any]:
        """What quotas would have refused of the requests of a rule in the last hour, as far as they are recorded."""
        await self.read()
        # It takes long, and so does reading what was recorded
        return asdict(await run_in_threadpool(lambda: estimate(self._summaries.recordings(name), quotas)))

    async def search(self, text: str) -> list[dict[str, Any]]:
        """The keys of the last hour that contain a text; where keys are not shown, the one that is typed whole."""
        keys = (await self.read()).keys
        return self._keys([key for key in keys if text == key.key or (self._show_keys and text in str(key.key))])

    def _keys(self, keys: Sequence[KeyCounts]) -> list[dict[str, Any]]:
        return [{**asdict(key), **self._named(key.rule, key.bucket, key.key)} for key in keys[:SHOWN]]

    def _named(self, name: str, bucket: str, key: str | None) -> dict[str, Any]:
        """The id of a key of a rule, and the key itself if keys are shown."""
        identity = self._names.name_of(name, bucket)
        return {"rule": name, "id": identity, "key": key if self._show_keys else None, "bucket": None}

    async def _as_json(self, read: Summary) -> dict[str, Any]:
        overrides, history, waits = await self._overrides.all(), await self._overrides.history(), read.waits
        times = {"takes": waits.count, "p50": waits.quantile(0.5), "p99": waits.quantile(0.99)}
        return {
            "now": read.now,
            "rules": [{**asdict(rule), "override": _override(overrides.get(rule.name))} for rule in read.rules],
            "seconds": [[at, *numbers] for at, numbers in read.seconds.items()],
            "store": {"kind": "memory" if self._store.in_process else "redis", "name": repr(self._store), **times},
            "keys": self._keys(read.keys),
            "blocks": await self._blocks(read, history),
            "history": [self._change(each) for each in history[:SHOWN]],
            "minutes": read.minutes,
            "hours": read.hours,
            **{name: [asdict(row) for row in getattr(read, name)] for name in ("queues", "learned", "processes")},
        }

    def _change(self, change: Change) -> dict[str, Any]:
        ends = {"before": _override(change.before), "after": _override(change.after)}
        key = {} if change.key is None else self._named(change.name, bucket("", change.key), change.key)
        return {**asdict(change), **ends, "key": key or None}

    async def _blocks(self, read: Summary, history: Sequence[Change]) -> list[dict[str, Any]]:
        """The blocks that hold, as far as the last hour and the actions tell whom to look at."""
        names = {rule.name for rule in read.rules if rule.has_penalty}
        refused = [(key.rule, key.key) for key in read.keys if key.refused]
        keys = dict.fromkeys([*[(each.name, each.key) for each in history], *refused])
        asked = [(name, key) for name, key in keys if key is not None and name in names]
        looks = [Blocks(store=self._store, name=name).blocked_for(key) for name, key in asked[:MOST_BLOCKS]]
        blocks = [each for each in zip(asked, await asyncio.gather(*looks)) if each[1] > 0]
        return [{**self._named(name, bucket("", key), key), "left": left} for (name, key), left in blocks]

    # The actions of the forms

    def action(self, name: str) -> Callable[[Fields, str | None], Awaitable[str]] | None:
        """The action of a form; ``None`` if there is no such form.

        It takes the fields of the form and who sent it, and returns a sentence that says what was done. It raises
        ``ValueError`` for invalid fields, and may raise ``StoreError``.
        """
        return getattr(self, f"_{name}") if name in ACTIONS else None

    async def _set(self, fields: Fields, by: str | None) -> str:
        """Set the limit of a rule, for a while or until it is unset."""
        name, quota, lasts = _field(fields, "rule"), _field(fields, "quota"), fields.get("for", "")
        await self._overrides.set(name, quota, seconds=parse_period(lasts) if lasts else None, by=by)
        return f"{name} is {quota} now" + (f", for {lasts}" if lasts else "")

    async def _unset(self, fields: Fields, by: str | None) -> str:
        """Let the limit of the program apply again."""
        name = _field(fields, "rule")
        had_one = await self._overrides.unset(name, by=by)
        return f"{name} is as the program says" + ("" if had_one else ", as before")

    async def _reset(self, fields: Fields, by: str | None) -> str:
        """Forget what a key has used of a rule."""
        name, key, row = await self._key(fields)
        buckets: list[Any] = [Charge(quota, key, 1, name) for quota in await self._quotas(name)]
        if not buckets and row is None:
            raise ValueError(f"no process on this store has a rule named {name!r}")
        await reset(self._store, buckets or [row])  # a store needs no more than the bucket
        await self._overrides.note(name, key, "reset", by=by)
        return f"{self._shown(fields, key)} has used nothing of {name} now"

    async def _block(self, fields: Fields, by: str | None) -> str:
        """Block a key of a rule for a while."""
        name, key, _ = await self._key(fields)
        lasts = _field(fields, "for")
        if not any(rule.has_penalty for rule in (await self.read()).rules if rule.name == name):
            raise ValueError(f"{name} {_NO_PENALTY}")
        if not await Blocks(store=self._store, name=name).block(key, lasts):
            return f"{self._shown(fields, key)} was blocked by {name} already"
        await self._overrides.note(name, key, f"blocked for {lasts}", by=by)
        return f"{self._shown(fields, key)} is blocked by {name} for {lasts}"

    async def _lift(self, fields: Fields, by: str | None) -> str:
        """Let a blocked key pass again."""
        name, key, _ = await self._key(fields)
        await Blocks(store=self._store, name=name).lift(key)
        await self._overrides.note(name, key, "unblocked", by=by)
        return f"{self._shown(fields, key)} is not blocked by {name}"

    def _shown(self, fields: Fields, key: str) -> str:
        return key if self._show_keys or fields.get("key") else f"key {fields.get('id')}"

    async def _key(self, fields: Fields) -> tuple[str, str, KeyCounts | None]:
        """The rule and the key that a form names, and the row of the page that it was sent from, if any."""
        identity = fields.get("id")
        if not identity:
            return _field(fields, "rule"), _field(fields, "key"), None
        names = {self._names.name_of(key.rule, key.bucket): key for key in (await self.read()).keys}
        row = names.get(identity)
        for change in [] if row else await self._overrides.history():
            if change.key and identity == self._names.name_of(change.name, bucket("", change.key)):
                return change.name, change.key, None
        if row is None:
            raise ValueError("this key is not among those that the page knows any more: type it")
        if row.key is None:
            raise ValueError("the store holds only a hash of this key: type the key itself")
        return row.rule, row.key, row

    async def _quotas(self, name: str) -> list[Quota]:
        """The quotas that a key of a rule may have used: those of the program, and those of an override."""
        rule = next((rule for rule in (await self.read()).rules if rule.name == name), None)
        own = [quota for owner, quota in owned(self._store) if owner == name and quota.name not in RESERVED_NAMES]
        if not own and rule is not None and rule.quotas:
            own = list(as_quotas(rule.quotas))
        override = (await self._overrides.all()).get(name)
        others = [] if override is None or override.word else quotas_under(override, own)
        return list({(quota.name, quota.kind): quota for quota in [*own, *others]}.values())


def _override(override: Override | None) -> dict[str, Any] | None:
    if override is None:
        return None
    return {"quota": override.text, "word": override.word, "until": override.until, "by": override.by}


def _field(fields: Fields, name: str) -> str:
    """A field that must not be empty."""
    value = fields.get(name, "").strip()
    if not value:
        raise ValueError(f"the field {name!r} is empty")
    return value
