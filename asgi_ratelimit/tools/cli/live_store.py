"""The store that commands work on, from ``--store`` or from the environment."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from ...dashboard import RuleSummary, summary
from ...errors import ConfigurationError
from ...stores import RedisStore
from .arguments import listed

T = TypeVar("T")

VARIABLE = "ASGI_RATELIMIT_STORE"
TIMEOUT = 2.0
"""Seconds in which the store has to answer: only the person who typed a command waits for it."""

_NO_PROGRAM = (
    "no program has reported a request on this store in the last hour: none has had one yet, or has ended before its "
    "first report without closing its store, or programs use another URL or prefix"
)
_EXAMPLE = f"--store redis://localhost:6379/0, or {VARIABLE}"


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the store is."""
    parser.add_argument("--store", default=os.environ.get(VARIABLE), help=f"its URL (default: that in {VARIABLE})")
    parser.add_argument("--prefix", default="rl", help="the prefix of the store's keys (default: rl)")


def store_url(options: argparse.Namespace) -> str:
    """The URL of the store. Raises ``ConfigurationError`` if there is none, or only the memory of this process."""
    url: str | None = options.store
    if not url:
        raise ConfigurationError(f"which store? {_EXAMPLE}")
    if url.startswith("memory:"):
        raise ConfigurationError(f"{url!r} is the memory of one process, which no other process can see: {_EXAMPLE}")
    return url


def with_store(options: argparse.Namespace, work: Callable[[RedisStore], Awaitable[T]]) -> T:
    """The result of ``work`` on the store, which is closed afterwards. Raises ``StoreError`` if it does not answer."""
    url = store_url(options)

    async def run() -> T:
        store = RedisStore(url, prefix=options.prefix, timeout=TIMEOUT, on_error="deny")
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


async def recent_rules(store: RedisStore) -> Sequence[RuleSummary]:
    """The rules and limiters that programs on the store have used in the last hour."""
    return (await summary(store)).rules


def warn_of_no_program(rules: Sequence[RuleSummary]) -> None:
    """Warn if no program has reported a request on the store in the last hour."""
    if not rules:
        print(f"warning: {_NO_PROGRAM}", file=sys.stderr)


def warn_of_name(name: str, rules: Iterable[RuleSummary]) -> bool:
    """Warn about a name that no program has used on the store in the last hour; return whether it has warned."""
    names = sorted({rule.name for rule in rules})
    if name in names:
        return False
    print(f"warning: {_not_used(name, names)}", file=sys.stderr)
    return True


def _not_used(name: str, names: Sequence[str]) -> str:
    if not names:
        return _NO_PROGRAM
    near = get_close_matches(name, names, 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return f"nobody has used {name!r} in the last hour, but {listed([*map(repr, names)])}{hint}"
