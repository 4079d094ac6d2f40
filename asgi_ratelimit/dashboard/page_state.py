"""What the page shows, as JSON: the summary, the overrides, and their history; and the actions of its forms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool

from ..clock import monotonic_us
from ..counts import recording_in
from ..decision import Charge
from ..inbound import Blocks
from ..overrides import Change, Override, Overrides, quotas_under
from ..quota_text import RESERVED_NAMES, as_quotas, parse_period
from ..quotas import Quota
from ..stores import Store, reset
from ..stores.base import owned
from .access import Tokens
from .summaries import KeyCounts, RuleSummary, Summaries, Summary, estimate

SHOWN_KEYS = 20
SHOWN_CHANGES = 20
REREAD_US = 250_000.0
"""The state is read again once it is older than this, however many pages show it."""

Fields: TypeAlias = Mapping[str, str]
Action: TypeAlias = Callable[[Fields, str | None], Awaitable[str]]
"""Takes the fields of a form and who sent it, and returns a sentence that says what was done.

It raises ``ValueError`` for invalid fields, and may raise ``StoreError``.
"""

ACTIONS = ("set", "unset", "reset", "block", "lift")
"""The names of the forms."""

_NO_RULE = "no process on this store has a rule of this name"
_NO_PENALTY = 'the rule has no Penalty, and checks for no blocks, Rule(..., penalty=Penalty("10 minutes", after=5))'


class PageState:
    """The state that all open pages show, read once for all of them. Keys are shown only with ``show_keys``."""

    def __init__(self, store: Store, tokens: Tokens, *, show_keys: bool) -> None:
        self._store = store
        self._overrides = Overrides(store)
        self._tokens = tokens
        self._show_keys = show_keys
        self._summaries = Summaries(store)
        self._summary: Summary | None = None
        self._latest: dict[str, Any] = {}
        self._read_us = -REREAD_US
        self._lock = asyncio.Lock()

    async def read(self, *, is_fresh: bool = False) -> dict[str, Any]:
        """The state as JSON values; with ``is_fresh``, it is always read now. Raises ``StoreError``."""
        await self._read(is_fresh=is_fresh)
        return self._latest

    async def _read(self, *, is_fresh: bool = False) -> Summary:
        async with self._lock:
            if is_fresh or self._summary is None or monotonic_us() - self._read_us >= REREAD_US:
                self._summary = await self._summaries.read()
                self._latest = await self._as_json(self._summary)
                self._read_us = monotonic_us()
            return self._summary

    async def what_if(self, name: str, quotas: Sequence[Quota]) -> dict[str, Any]:
        """What quotas would have refused of the requests of a rule in the last hour, as far as they are recorded."""
        await self._read()
        parts = list(self._summaries.parts())

        def estimated() -> dict[str, Any]:  # reading the recordings takes long as well
            recordings = [(minute, recording_in(part["recordings"], name)) for minute, part in parts]
            return asdict(estimate([(minute, each) for minute, each in recordings if each is not None], quotas))

        return await run_in_threadpool(estimated)

    async def _as_json(self, read: Summary) -> dict[str, Any]:
        overrides, history, waits = await self._overrides.all(), await self._overrides.history(), read.waits
        keys = [{**asdict(key), "id": await self._tokens.name_of(key.bucket)} for key in read.keys[:SHOWN_KEYS]]
        for key in keys:
            del key["bucket"]
            key["key"] = key["key"] if self._show_keys else None
        times = {"takes": waits.count, "p50": waits.quantile(0.5), "p99": waits.quantile(0.99)}
        return {
            "now": read.now,
            "rules": [{**asdict(rule), "override": _override(overrides.get(rule.name))} for rule in read.rules],
            "seconds": [[at, *numbers] for at, numbers in read.seconds.items()],
            "store": {"kind": "memory" if self._store.in_process else "redis", **times},
            "keys": keys,
            "history": [_change(each) for each in history[:SHOWN_CHANGES]],
            **{name: [asdict(row) for row in getattr(read, name)] for name in ("queues", "learned", "processes")},
        }

    # The actions of the forms

    def action(self, name: str) -> Action | None:
        """The action of a form; ``None`` if there is no such form."""
        return getattr(self, f"_{name}") if name in ACTIONS else None

    async def _set(self, fields: Fields, by: str | None) -> str:
        """Set the limit of a rule, for a while or until it is unset."""
        name, quota, lasts = _field(fields, "rule"), _field(fields, "quota"), fields.get("for", "")
        seconds = parse_period(lasts) if lasts else None
        await self._overrides.set(name, quota, seconds=seconds, by=by)
        return f"{name} is {quota} now" + (f", for {lasts}" if lasts else "")

    async def _unset(self, fields: Fields, by: str | None) -> str:
        """Let the limit of the program apply again."""
        name = _field(fields, "rule")
        had_one = await self._overrides.unset(name, by=by)
        return f"{name} is as the program says" + ("" if had_one else ", as before")

    async def _reset(self, fields: Fields, by: str | None) -> str:  # noqa: ARG002  # all actions have it
        """Forget what a key has used of a rule."""
        name, key, row = await self._key(fields)
        buckets: list[Any] = [Charge(quota, key, 1, name) for quota in await self._quotas(name)]
        buckets += [] if row is None else [row]  # a store needs no more than the bucket
        if not buckets:
            raise ValueError(f"no process on this store has a rule named {name!r}")
        await reset(self._store, buckets)
        return f"{_shown(fields)} has used nothing of {name} now"

    async def _block(self, fields: Fields, by: str | None) -> str:  # noqa: ARG002  # all actions have it
        """Block a key of a rule for a while."""
        name, key, _ = await self._key(fields)
        lasts = _field(fields, "for")
        is_new = await Blocks(store=self._store, name=name).block(key, lasts)
        done = f"is blocked by {name} for {lasts}" if is_new else "was blocked already"
        rule = await self._rule(name)
        if rule is None or not rule.has_penalty:
            done += f", but it can still send requests: {_NO_PENALTY if rule else _NO_RULE}"
        return f"{_shown(fields)} {done}"

    async def _lift(self, fields: Fields, by: str | None) -> str:  # noqa: ARG002  # all actions have it
        """Let a blocked key pass again."""
        name, key, _ = await self._key(fields)
        await Blocks(store=self._store, name=name).lift(key)
        return f"{_shown(fields)} is not blocked by {name}"

    async def _key(self, fields: Fields) -> tuple[str, str, KeyCounts | None]:
        """The rule and the key that a form names, and the row of the page that it was sent from, if any."""
        identity = fields.get("id")
        if not identity:
            return _field(fields, "rule"), _field(fields, "key"), None
        names = {await self._tokens.name_of(key.bucket): key for key in (await self._read()).keys}
        row = names.get(identity)
        if row is None:
            raise ValueError("this key is not among those of the last hour any more: type it")
        if row.key is None:
            raise ValueError("the store holds only a hash of this key: type the key itself")
        return row.rule, row.key, row

    async def _rule(self, name: str) -> RuleSummary | None:
        return next((rule for rule in (await self._read()).rules if rule.name == name), None)

    async def _quotas(self, name: str) -> list[Quota]:
        """The quotas that a key of a rule may have used: those of the program, and those of an override."""
        rule = await self._rule(name)
        own = [quota for owner, quota in owned(self._store) if owner == name and quota.name not in RESERVED_NAMES]
        if not own and rule is not None and rule.quotas:
            own = list(as_quotas(rule.quotas))
        override = (await self._overrides.all()).get(name)
        others = [] if override is None or override.word else quotas_under(override, own)
        return list({(quota.name, quota.kind): quota for quota in [*own, *others]}.values())


def _change(change: Change) -> dict[str, Any]:
    return {**asdict(change), "before": _override(change.before), "after": _override(change.after)}


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


def _shown(fields: Fields) -> str:
    return fields.get("key") or f"key {fields.get('id')}"
