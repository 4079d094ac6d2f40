"""What is checked when an app starts, and what is completed when it ends.

A mistake that makes a limit impossible raises ``ConfigurationError``. One that turns a limit off, or lets clients
evade it, is logged once, with a link to the remedy.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, lru_cache, wraps
from typing import ParamSpec, TypeAlias

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ConfigurationError
from ..hooks import Hooks
from ..keys import KeyFunction, cookie, header, path_param, user
from ..keys.path_patterns import compile_path
from ..logs import logger, warn_once
from ..overrides import limit_text
from ..quota_text import readable
from ..stores import MemoryStore, Store
from .delays import require_asyncio
from .functions import takes
from .routes import AppRoute, example_path, walk
from .rules import CompiledRule

P = ParamSpec("P")


# The middleware


def logs_errors(construct: Callable[P, None]) -> Callable[P, None]:
    """Log the error that a constructor raises for its arguments, once in this process.

    Starlette builds its middlewares when the server sends the first message of the lifespan. Servers take an error
    there as a sign that the app has no lifespan, and some do not report it.
    """

    @wraps(construct)
    def logging(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            construct(*args, **kwargs)
        except ValueError as error:
            _log(f"{type(error).__name__}: {error}")
            raise

    return logging


@cache
def _log(text: str) -> None:
    """Log this once: Starlette tries again at each request, so it would be logged each time."""
    logger.error("RateLimitMiddleware cannot be built, and no request can be answered: %s", text)


def checked_app(app: ASGIApp) -> ASGIApp:
    """``app``, if it can be one; ``ConfigurationError`` otherwise."""
    if callable(app) and takes(app, 3):
        return app
    raise ConfigurationError(
        f"the first argument is an app of ASGI, not {app!r}: RateLimitMiddleware(app, "
        '"5/minute"), app.add_middleware(RateLimitMiddleware, quota="5/minute"), or WsgiToAsgi(app) of asgiref for WSGI'
    )


def require_usable(rules: Iterable[CompiledRule], scope: Scope) -> None:
    """Raise ``ConfigurationError`` for a rule that cannot apply to requests such as that of this scope."""
    for rule in rules:
        if rule.max_delay or rule.messages:
            require_asyncio()
        if rule.source is None and "path_params" not in scope:
            _require_no_parameter(rule.key)


def _require_no_parameter(key: KeyFunction) -> None:
    """Raise for a path parameter in the key of a quota for all requests, because no router has read the path yet."""
    if isinstance(key, path_param):
        key.of({})
    for part in getattr(key, "parts", ()):
        _require_no_parameter(part)


def warn_of_no_limits() -> None:
    """Warn of a middleware that limits nothing, as where the variable that is to be its quota is not set."""
    warn_once("a-middleware-that-limits-nothing", NO_LIMITS)


NO_LIMITS = (
    "RateLimitMiddleware has no quota and no rules, and no route has a RateLimit: nothing is limited: "
    'quota="100/minute"'
)


# Rules of one name share their buckets: none may switch off or use up the limit of another


def require_agreement(rules: Iterable[CompiledRule]) -> None:
    """Raise ``ConfigurationError`` for rules of one name that differ in what they do to the buckets they share.

    Their quotas of one name must be equal, or come from one function; so must their penalties. They are all enforced,
    or all in shadow. Messages of a rule are as a rule of the name that their buckets have.
    """
    declared = tuple(rules)
    of_messages = [
        replace(rule, name=rule.messages_name, quota=rule.messages, messages=(), penalty=None)
        for rule in declared
        if rule.messages and not rule.shadow
    ]
    seen: dict[tuple[str, str], tuple[object, str]] = {}
    for rule in (*declared, *of_messages):
        for what, value, text in _shared(rule):
            other, other_text = seen.setdefault((rule.name, what), (value, text))
            if other != value:
                both = f"two rules named {rule.name!r} have different {what}, {other_text} and {text}"
                raise ConfigurationError(f'{both}, and would share a bucket: name one Rule(..., name="uploads")')


def _shared(rule: CompiledRule) -> Iterator[tuple[str, object, str]]:
    """What rules of one name have in common: what it is, its value, and the value as text."""
    if rule.quota:
        yield "quotas", rule.quota if callable(rule.quota) else None, limit_text(rule.quota)
        yield "effects", rule.shadow, f"shadow={rule.shadow}"
    for quota in () if callable(rule.quota) else rule.quota:
        yield f"quotas named {quota.name!r}", quota, readable(quota)
    if rule.penalty is not None:
        yield "penalties", rule.penalty, repr(rule.penalty)


# Rules that never apply


def warn_of_rules(rules: Sequence[CompiledRule], app: ASGIApp) -> None:
    """Warn about rules that never apply to any request, and about answers that scripts in a browser cannot read."""
    for text in unused_rules(rules, app):
        warn_once("a-rule-that-never-applies", text)
    if any(isinstance(each.app, CORSMiddleware) for route in walk(app) for each in route.middlewares):
        warn_once("a-cors-middleware-inside-of-the-limit", _CORS_INSIDE)


_CORS_INSIDE = (
    "scripts in a browser cannot read refusals: app.add_middleware(CORSMiddleware, ...) after RateLimitMiddleware"
)


def unused_rules(rules: Sequence[CompiledRule], app: ASGIApp) -> Iterator[str]:
    """The reasons why rules never apply to any request."""
    routes = [(route, _sample(route.path)) for route in walk(app)]
    for number, rule in enumerate(rules):
        example = example_path(rule.path)
        final = next((each for each in rules[:number] if _precludes(each, rule, example)), None)
        of_path = [route for route, sample in routes if _may_match_path(rule, example, sample)]
        if final is not None:
            yield f"{rule!r} never applies, because {final!r} decides alone wherever it matches: put it first"
        elif not of_path:
            near = get_close_matches(rule.path, [route.path for route, _ in routes], 1)
            hint = f" The nearest route is {near[0]!r}" if near else ""
            yield f"{rule!r} matches no route of the app: is its path complete?{hint}"
        elif not any(_may_match_method(rule, route) for route in of_path):
            methods = sorted({each for route in of_path for each in route.methods or ()})
            allowed = f"takes {', '.join(methods)} only" if methods else "is that of a WebSocket: leave out methods"
            yield f"{rule!r} matches no route of the app: its path {allowed}"


def _precludes(earlier: CompiledRule, rule: CompiledRule, example: str | None) -> bool:
    """Whether an earlier rule decides alone on every request that a later rule matches, as an example of its path."""
    has_methods = earlier.methods is None or (rule.methods is not None and rule.methods <= earlier.methods)
    return earlier.is_final and has_methods and example is not None and earlier.pattern.match(example) is not None


_Sample: TypeAlias = tuple[str, re.Pattern[str]] | None
"""An example of a route's path, and the pattern of all of them; ``None`` if that is uncertain."""


@lru_cache(maxsize=4096)
def _sample(path: str) -> _Sample:
    example = example_path(path)
    return None if example is None else (example, compile_path(path)[0])


def _may_match_path(rule: CompiledRule, example: str | None, sample: _Sample) -> bool:
    """Whether a rule, with an example of its path, may apply to some path of a route; true if that is uncertain."""
    return example is None or sample is None or bool(rule.pattern.match(sample[0]) or sample[1].match(example))


def _may_match_method(rule: CompiledRule, route: AppRoute) -> bool:
    """Whether a rule may apply to some method of a route: a handshake has none, and a preflight is OPTIONS."""
    if rule.methods is None or (route.methods is None and not route.is_websocket):
        return True
    return not route.is_websocket and bool(rule.methods & {*(route.methods or ()), "OPTIONS"})


# Limits that clients evade


def warn_of_evadable_rules(rules: Iterable[CompiledRule], charging: Sequence[CompiledRule]) -> None:
    """Warn about rules, and about all that charge anything, if a client evades them by leaving out their key."""
    for text in (*evadable_rules(rules), *evadable_limits(charging)):
        warn_once("a-key-that-clients-leave-out", text)


def evadable_rules(rules: Iterable[CompiledRule]) -> Iterator[str]:
    """Which rules decide alone, and limit nobody who leaves out the key, or invents another one for each request."""
    for rule in rules:
        if rule.is_final and rule.quota and (_can_be_invented(rule.key) or isinstance(rule.key, user)):
            problem = f"{rule!r} decides alone, and clients who leave out or invent its key have no limit at all"
            mend = "leave out only=True, and give the middleware a quota by client_ip(), which applies as well"
            yield f"{problem}: {mend}"


def evadable_limits(charging: Sequence[CompiledRule]) -> Iterator[str]:
    """Why the limits of a middleware together limit nobody who leaves out or invents the keys of all of them."""
    if charging and all(_can_be_invented(rule.key) and not rule.is_final for rule in charging):
        problem = f"clients who leave out or invent the key of each limit here, such as {charging[0].key!r}, have none"
        yield f'{problem}: add one by address, Rule("/{{path:path}}", "300/minute", key=client_ip())'


def _can_be_invented(key: KeyFunction) -> bool:
    """Whether a client can have a new key for each request, by a header or a cookie."""
    return isinstance(key, (header, cookie)) or any(map(_can_be_invented, getattr(key, "parts", ())))


# Memory with several workers


def warn_of_workers(store: Store) -> None:
    """Warn about a memory store in one of several workers: each worker would let the whole quota pass."""
    workers = number_of_workers() if isinstance(store, MemoryStore) else 1
    if workers > 1:
        problem = f"each of {workers} workers has a memory store of its own, so {workers} times as much may pass"
        warn_once("a-memory-store-with-several-workers", f'{problem}: store="redis://..."')


_VARIABLES = ("WEB_CONCURRENCY", "UVICORN_WORKERS", "GRANIAN_WORKERS")


def number_of_workers() -> int:
    """The number of workers, from the command line of a server and the environment.

    1 if nothing says that there are more, as with several containers.
    """
    arguments = [*sys.argv, *os.environ.get("GUNICORN_CMD_ARGS", "").split()]
    texts = [os.environ.get(name, "") for name in _VARIABLES]
    for option, following in zip(arguments, [*arguments[1:], ""]):
        name, _, value = option.partition("=")
        if name in ("--workers", "-w"):
            texts.append(value or following)
        elif option.startswith("-w"):
            texts.append(option[2:])
    return max([1, *[int(text) for text in texts if text.isdecimal() and text.isascii()]])


# The end of an app


def draining(receive: Receive, hooks: Hooks) -> Receive:
    """Complete the calls of asynchronous hooks before the app shuts down, because they may need what it closes."""

    async def draining_receive() -> Message:
        message = await receive()
        if message["type"] == "lifespan.shutdown":
            await hooks.aclose()
        return message

    return draining_receive


def closing(send: Send, store: Store, hooks: Hooks) -> Send:
    """Close the store after the app has shut down, once nothing uses it any more."""

    async def closing_send(message: Message) -> None:
        if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
            await hooks.aclose()
            await store.aclose()
        await send(message)

    return closing_send
