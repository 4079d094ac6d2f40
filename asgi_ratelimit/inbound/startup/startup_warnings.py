"""Warnings about mistakes that raise no error: each is logged once, with a link to the remedy."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache

from starlette.types import ASGIApp

from ...keys import KeyFunction, cookie, header, user
from ...keys.path_patterns import compile_path
from ...logs import warn_once
from ...stores import MemoryStore, Store
from ..functions.lacking_depends import NeedsDepends
from ..rules import CompiledRule
from .app_routes import AppRoute, example_path, walk


def warn_of_workers(store: Store) -> None:
    """Warn about a memory store in one of several workers: each worker would let the whole quota pass."""
    workers = number_of_workers() if isinstance(store, MemoryStore) else 1
    if workers > 1:
        warn_once(
            "a-memory-store-with-several-workers",
            f"each of {workers} workers has a memory store of its own, so {workers} times as much may pass: "
            'store="redis://..." is shared by all',
        )


def warn_of_no_limits() -> None:
    """Warn of a middleware that limits nothing, as where the variable that is to be its quota is not set."""
    warn_once("a-middleware-that-limits-nothing", NO_LIMITS)


NO_LIMITS = (
    "RateLimitMiddleware has no quota and no rules, and no route has a RateLimit: nothing is limited: "
    'quota="100/minute"'
)


def has_limited_route(app: ASGIApp) -> bool:
    """Whether a route of an app has a limit by a dependency, or a middleware of its own that may have."""
    return any(
        any(isinstance(call, NeedsDepends) for call in route.dependencies)
        or any(hasattr(type(each.app), "limits_nothing") for each in route.middlewares)
        for route in walk(app)
    )


def warn_of_rules(rules: Sequence[CompiledRule], app: ASGIApp) -> None:
    """Warn about rules that never apply to any request."""
    for text in unused_rules(rules, app):
        warn_once("a-rule-that-never-applies", text)


def warn_of_evadable_rules(rules: Iterable[CompiledRule], charging: Sequence[CompiledRule]) -> None:
    """Warn about rules, and about all that charge anything, if a client evades them by leaving out their key."""
    for text in (*evadable_rules(rules), *evadable_limits(charging)):
        warn_once("a-key-that-clients-leave-out", text)


def evadable_rules(rules: Iterable[CompiledRule]) -> Iterator[str]:
    """Which rules decide alone, and limit nobody who leaves out the key, or invents another one for each request."""
    for rule in rules:
        if rule.is_final and rule.quota and _can_be_invented(rule.key):
            yield (
                f"{rule!r} decides alone, and a client that leaves out or invents its key has no limit at all: leave "
                "out only=True, and give the middleware a quota by client_ip(), which applies as well"
            )
        elif rule.is_final and rule.quota and _can_be_left_out(rule.key):
            yield (
                f"{rule!r} decides alone, and a request without its key has no limit at all: "
                f"key=first_of({rule.key!r}, client_ip())"
            )


def evadable_limits(charging: Sequence[CompiledRule]) -> Iterator[str]:
    """Why the limits of a middleware together limit nobody who leaves out or invents the keys of all of them."""
    if charging and all(_can_be_invented(rule.key) and not rule.is_final for rule in charging):
        yield (
            f"a client can leave out or invent the key of every limit here, such as {charging[0].key!r}, and then none "
            'limits it: add one by address, Rule("/{path:path}", "300/minute", key=client_ip())'
        )


def _can_be_left_out(key: KeyFunction) -> bool:
    """Whether a key of this package comes from what a client need not send."""
    parts = getattr(key, "parts", ())
    return isinstance(key, (header, cookie, user)) or (bool(parts) and all(map(_can_be_left_out, parts)))


def _can_be_invented(key: KeyFunction) -> bool:
    """Whether a client can have a new key for each request, by a header or a cookie."""
    return isinstance(key, (header, cookie)) or any(map(_can_be_invented, getattr(key, "parts", ())))


def unused_rules(rules: Sequence[CompiledRule], app: ASGIApp) -> Iterator[str]:
    """The reasons why rules never apply to any request."""
    routes = list(walk(app))
    for number, rule in enumerate(rules):
        final = next((each for each in rules[:number] if _precludes(each, rule)), None)
        matching = [route for route in routes if _may_match(rule, route)]
        if final is not None:
            yield f"{rule!r} never applies, because {final!r} decides alone wherever it matches: put it first"
        elif not matching:
            of_path = [route for route in routes if _may_match_path(rule, route)]
            reason = _mismatch(of_path) if of_path else _missing(rule.path, [route.path for route in routes])
            yield f"{rule!r} matches no route of the app: {reason}"


def _mismatch(routes: Sequence[AppRoute]) -> str:
    """The reason why a rule matches none of these routes, which are all of those with its path."""
    methods = sorted({each for route in routes for each in route.methods or ()})
    if methods:
        return f"its path takes {', '.join(methods)} only"
    return "its path is that of a WebSocket, whose handshake has no method: leave out methods"


def _missing(path: str, routes: Sequence[str]) -> str:
    """Why none of these routes has this path, and which one is the nearest."""
    near = get_close_matches(path, routes, 1)
    return f"is its path complete?{f' The nearest route is {near[0]!r}' if near else ''}"


def _precludes(earlier: CompiledRule, rule: CompiledRule) -> bool:
    """Whether an earlier rule decides alone on every request that a later rule matches."""
    path = example_path(rule.path)
    has_methods = earlier.methods is None or (rule.methods is not None and rule.methods <= earlier.methods)
    return earlier.is_final and has_methods and path is not None and earlier.pattern.match(path) is not None


def _may_match(rule: CompiledRule, route: AppRoute) -> bool:
    """Whether a rule may apply to some request for a route; true if that is uncertain."""
    if rule.methods and (route.is_websocket or (route.methods and not rule.methods & {*route.methods, "OPTIONS"})):
        return False
    return _may_match_path(rule, route)


def _may_match_path(rule: CompiledRule, route: AppRoute) -> bool:
    of_route, of_rule = example_path(route.path), example_path(rule.path)
    if of_route is None or of_rule is None:
        return True
    return bool(rule.pattern.match(of_route) or _pattern(route.path).match(of_rule))


@lru_cache(maxsize=1024)
def _pattern(path: str) -> re.Pattern[str]:
    return compile_path(path)[0]


_VARIABLES = ("WEB_CONCURRENCY", "UVICORN_WORKERS", "GRANIAN_WORKERS")


def number_of_workers() -> int:
    """The number of workers, from the command line and the environment.

    1 if nothing says that there are more, as with several containers.
    """
    arguments = [*sys.argv, *_split(os.environ.get("GUNICORN_CMD_ARGS", ""))]
    from_environment = [_number(os.environ.get(name)) for name in _VARIABLES]
    return max(1, *_workers_in(arguments), *from_environment)


def _workers_in(arguments: Sequence[str]) -> Iterator[int]:
    """The numbers on the command line of uvicorn, gunicorn, hypercorn, granian or fastapi."""
    for option, following in zip(arguments, [*arguments[1:], ""]):
        name, equals, value = option.partition("=")
        if name in ("--workers", "-w"):
            yield _number(value if equals else following)
        elif option.startswith("-w"):
            yield _number(option[2:])


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and text.isascii() else 1


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
