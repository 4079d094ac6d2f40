"""What the page shows, as JSON: the summary, the overrides, and their history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..clock import monotonic_us
from ..counts import Part
from ..overrides import Change, Override, Overrides
from ..stores import MemoryStore, Store
from .csrf import Tokens
from .summaries import KeyCounts, RuleSummary, Summaries, Summary

SHOWN_KEYS = 20
SHOWN_CHANGES = 20
_REREAD_US = 250_000.0
"""The state is read again once it is older than this, however many pages show it."""


class PageState:
    """The state that all open pages show, read once for all of them. Keys are shown only with ``show_keys``."""

    def __init__(self, store: Store, tokens: Tokens, *, show_keys: bool) -> None:
        self.overrides = Overrides(store)
        self._store = store
        self._tokens = tokens
        self._show_keys = show_keys
        self._summaries = Summaries(store)
        self._summary: Summary | None = None
        self._latest: dict[str, Any] = {}
        self._read_us = -_REREAD_US
        self._lock = asyncio.Lock()

    async def read(self, *, is_fresh: bool = False) -> dict[str, Any]:
        """The state as JSON values; with ``is_fresh``, it is always read now. Raises ``StoreError``."""
        async with self._lock:
            if is_fresh or monotonic_us() - self._read_us >= _REREAD_US:
                self._summary = await self._summaries.read()
                self._latest = await self._as_json(self._summary)
                self._read_us = monotonic_us()
            return self._latest

    async def parts(self) -> list[tuple[int, Part]]:
        """What all processes have published in the last hour, each part with its minute since the epoch."""
        await self.read()
        return list(self._summaries.parts())

    async def rule(self, name: str) -> RuleSummary | None:
        """The rule of this name."""
        await self.read()
        rules = () if self._summary is None else self._summary.rules
        return next((rule for rule in rules if rule.name == name), None)

    async def key(self, identity: str) -> KeyCounts | None:
        """The key that is shown under a name of its own."""
        await self.read()
        for key in () if self._summary is None else self._summary.keys:
            if await self._tokens.name_of(key.bucket) == identity:
                return key
        return None

    async def _as_json(self, read: Summary) -> dict[str, Any]:
        overrides = await self.overrides.all()
        history = (await self.overrides.history())[:SHOWN_CHANGES]
        shown = read.keys[:SHOWN_KEYS]
        names = {key.bucket: await self._tokens.name_of(key.bucket) for key in shown}
        return {
            "now": read.now,
            "rules": [{**asdict(rule), "override": _override(overrides.get(rule.name))} for rule in read.rules],
            "seconds": [[at, *numbers] for at, numbers in read.seconds.items()],
            "store": self._store_as_json(read),
            "keys": [self._key(key, names[key.bucket]) for key in shown],
            "queues": [asdict(row) for row in read.queues],
            "learned": [asdict(row) for row in read.learned],
            "processes": [asdict(process) for process in read.processes],
            "history": [_change(change) for change in history],
        }

    def _store_as_json(self, read: Summary) -> dict[str, Any]:
        waits = read.waits
        return {
            "kind": "memory" if isinstance(self._store, MemoryStore) else "redis",
            "takes": waits.count,
            "mean": waits.mean,
            "p50": waits.quantile(0.5),
            "p99": waits.quantile(0.99),
        }

    def _key(self, key: KeyCounts, name: str) -> dict[str, Any]:
        shown = key.key if self._show_keys else None
        return {"id": name, "key": shown, "rule": key.rule, "requests": key.requests, "refused": key.refused}


def _override(override: Override | None) -> dict[str, Any] | None:
    if override is None:
        return None
    return {"quota": override.text, "word": override.word, "until": override.until, "by": override.by}


def _change(change: Change) -> Mapping[str, Any]:
    before, after = _override(change.before), _override(change.after)
    return {"name": change.name, "at": change.at, "by": change.by, "before": before, "after": after}
