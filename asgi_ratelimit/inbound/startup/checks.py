"""What goes wrong silently, said aloud once: each with a link to what to do."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache

from starlette.types import ASGIApp

from ...keys.path_patterns import compiled
from ...stores import MemoryStore, Store
from ..lines import Line
from ..rule_table import Compiled
from .routes import Found, example, walk

PAGE = "docs/warnings.md"

logger = logging.getLogger("asgi_ratelimit")

_said: set[str] = set()


def warn(subject: str, text: str) -> None:
    """Log a warning, unless the same one has been logged by this process before."""
    if text not in _said:
        _said.add(text)
        logger.warning("%s (%s#%s)", text, PAGE, subject)


def warn_of_costs(lines: Iterable[Line]) -> None:
    """Of costs that are above what their quotas can ever give at once: such requests never pass."""
    for line in lines:
        if callable(line.cost) or callable(line.quota):
            continue
        for quota in line.quota:
            if line.cost > quota.most:
                warn(
                    "a-cost-above-the-burst",
                    f"a request of {line.name!r} costs {line.cost:g}, and {quota!r} never gives more than "
                    f"{quota.most:g} at once: all are refused",
                )


def warn_of_workers(store: Store) -> None:
    """Of a memory store in one of several workers: each of them would let the whole quota pass."""
    workers = max(_workers_of(sys.argv), _number(os.environ.get("WEB_CONCURRENCY")))
    if isinstance(store, MemoryStore) and workers > 1:
        warn(
            "a-memory-store-with-several-workers",
            f"limits are kept in the memory of each of {workers} workers, so that {workers} times as much may pass: "
            'store="redis://..." is shared by all',
        )


def warn_of_twins(name: str) -> None:
    """Of two middlewares around one app, by which each request is charged."""
    warn(
        "a-middleware-added-twice",
        f"RateLimitMiddleware is around this app twice under the name {name!r}, and every request is charged by both: "
        "take one away, or give them names",
    )


def warn_of_rules(rules: Sequence[Compiled], app: ASGIApp) -> None:
    """Of rules that no request can ever meet."""
    routes = list(walk(app))
    for number, rule in enumerate(rules):
        ending = next((each for each in rules[:number] if _is_always_before(each, rule)), None)
        if ending is not None:
            text = f"{rule.rule!r} never applies, because {ending.rule!r} matches whatever it does, and stands alone"
            warn("a-rule-that-never-applies", f"{text}: put it first")
        elif not any(_may_meet(rule, found) for found in routes):
            warn("a-rule-that-never-applies", f"{rule.rule!r} matches no route of the app: is its path the whole one?")


def _is_always_before(earlier: Compiled, rule: Compiled) -> bool:
    made = example(rule.rule.path)
    has_methods = earlier.methods is None or (rule.methods is not None and rule.methods <= earlier.methods)
    return earlier.is_final and has_methods and made is not None and earlier.pattern.match(made) is not None


def _may_meet(rule: Compiled, found: Found) -> bool:
    """Whether a rule may apply to some request for a route; when in doubt, it may."""
    if rule.methods and (found.is_websocket or (found.methods and not rule.methods & {*found.methods, "OPTIONS"})):
        return False
    asked, ruled = example(found.path), example(rule.rule.path)
    if asked is None or ruled is None:
        return True
    return bool(rule.pattern.match(asked) or _pattern(found.path).match(ruled))


@lru_cache(maxsize=1024)
def _pattern(path: str) -> re.Pattern[str]:
    return compiled(path)[0]


def _workers_of(arguments: Sequence[str]) -> int:
    """The number of workers on the command line of uvicorn, gunicorn, hypercorn, granian or fastapi."""
    for option, value in zip(arguments, [*arguments[1:], ""]):
        name, found, own = option.partition("=")
        if name in ("--workers", "-w"):
            return _number(own if found else value)
    return 1


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() else 1
