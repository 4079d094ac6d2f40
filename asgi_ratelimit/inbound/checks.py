"""What is checked when an app starts, and what is completed when it ends.

A mistake that makes a limit impossible raises ``ConfigurationError``. One that turns a limit off, or lets clients
evade it, is logged once, with a link to the remedy.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache, wraps
from typing import Any, cast

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Send

from ..errors import ConfigurationError, F
from ..hooks import Hooks
from ..keys import KeyFunction, cookie, header, user
from ..keys.path_patterns import compile_path
from ..logs import logger, warn_once
from ..overrides import limit_text
from ..quota_text import readable
from ..stores import MemoryStore, Store
from .delays import require_asyncio
from .functions import takes
from .routes import AppRoute, example_path, walk
from .rules import CompiledRule, message_quotas

# The middleware


def logs_errors(construct: F) -> F:
    """Log the error that a constructor raises for its arguments.

    Starlette builds its middlewares when the server sends the first message of the lifespan. Servers take an error
    there as a sign that the app has no lifespan, and some do not report it.
    """

    @wraps(construct)
    def logging(*args: Any, **kwargs: Any) -> None:
        try:
            construct(*args, **kwargs)
        except ValueError as error:
            problem = f"{type(error).__name__}: {error}"
            logger.error("RateLimitMiddleware cannot be built, and no request can be answered: %s", problem)
            raise

    return cast("F", logging)


def checked_app(app: ASGIApp) -> ASGIApp:
    """``app``, if it can be one; ``ConfigurationError`` otherwise."""
    if callable(app) and takes(app, 3):
        return app
    raise ConfigurationError(
        f"the first argument is an app of ASGI, not {app!r}: RateLimitMiddleware(app, "
        '"5/minute"), app.add_middleware(RateLimitMiddleware, quota="5/minute"), or WsgiToAsgi(app) of asgiref for WSGI'
    )


def require_usable(rules: Iterable[CompiledRule]) -> None:
    """Raise ``ConfigurationError`` for a rule that cannot apply on this event loop."""
    if any(rule.max_delay or rule.messages for rule in rules):
        require_asyncio()


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
    or all in shadow. Messages of a rule have a name of their own.
    """
    seen: dict[tuple[str, str], tuple[object, str]] = {}
    for rule in rules:
        shared: list[tuple[str, str, object, str]] = []
        for name, quota in (*[(rule.name, quota) for quota in rule.constant_quotas], *message_quotas([rule])):
            shared.append((name, f"quotas named {quota.name!r}", quota, readable(quota)))
        if rule.quota:
            function = rule.quota if callable(rule.quota) else None
            shared.append((rule.name, "quotas", function, limit_text(rule.quota)))
            shared.append((rule.name, "effects", rule.shadow, f"shadow={rule.shadow}"))
        if rule.penalty is not None:
            shared.append((rule.name, "penalties", rule.penalty, repr(rule.penalty)))
        for name, what, value, text in shared:
            other, other_text = seen.setdefault((name, what), (value, text))
            if other != value:
                both = f"two rules named {name!r} have different {what}, {other_text} and {text}"
                raise ConfigurationError(f'{both}, and would share a bucket: name one Rule(..., name="uploads")')


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
    routes = list(walk(app))
    for number, rule in enumerate(rules):
        final = next((each for each in rules[:number] if _precludes(each, rule)), None)
        if final is not None:
            yield f"{rule!r} never applies, because {final!r} decides alone wherever it matches: put it first"
        elif not any(_may_match(rule, route) for route in routes):
            near = get_close_matches(rule.path, [route.path for route in routes], 1)
            places = [route.place for route in routes if route.path in near]
            hint = f" The nearest route is {places[0]!r}." if places else ""
            yield f"{rule!r} matches no route of the app: are its path and methods complete?{hint}"
        elif rule.messages and rule.methods is not None:
            yield f"{rule!r} limits no messages, because a WebSocket has no method: leave out methods"


def _precludes(earlier: CompiledRule, rule: CompiledRule) -> bool:
    """Whether an earlier rule decides alone on every request that a later rule matches, as an example of its path."""
    example = example_path(rule.path)
    has_methods = earlier.methods is None or (rule.methods is not None and rule.methods <= earlier.methods)
    return earlier.is_final and has_methods and example is not None and earlier.pattern.match(example) is not None


_pattern_of = lru_cache(maxsize=4096)(compile_path)


def _may_match(rule: CompiledRule, route: AppRoute) -> bool:
    """Whether a rule may apply to a request for a route; true if that is uncertain.

    A handshake has no method, and a preflight is OPTIONS.
    """
    if rule.methods is not None:
        methods = {*(route.methods or rule.methods), "OPTIONS"}
        if route.is_websocket or not rule.methods & methods:
            return False
    of_rule, of_route = example_path(rule.path), example_path(route.path)
    if of_rule is None or of_route is None:
        return True
    pattern, _ = _pattern_of(route.path)
    return bool(rule.pattern.match(of_route) or pattern.match(of_rule))


# Limits that clients evade


def warn_of_evadable_rules(charging: Sequence[CompiledRule]) -> None:
    """Warn about limits that limit nobody who leaves out or invents their keys."""
    for text in evadable_limits(charging):
        warn_once("a-key-that-clients-leave-out", text)


def evadable_limits(charging: Sequence[CompiledRule]) -> Iterator[str]:
    """Why clients who leave out or invent keys have no limit: under a rule that decides alone, or under all others."""
    alone = [[rule] for rule in charging if rule.is_final and rule.quota]
    for rules in (*alone, [rule for rule in charging if not rule.is_final]):
        if rules and all(map(_is_evaded, rules)):
            problem = f"clients who leave out or invent {rules[0].key!r}, as of {rules[0].name!r}, have no limit at all"
            example = 'Rule("/{path:path}", "300/minute", key=client_ip())'
            yield f"{problem}: add one by address, {example}, and leave out only=True"


def _is_evaded(rule: CompiledRule) -> bool:
    return _can_be_invented(rule.key) or (rule.is_final and isinstance(rule.key, user))


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


def number_of_workers() -> int:
    """The number of workers, from the command line of a server and the environment.

    1 if nothing says that there are more, as with several containers.
    """
    arguments = " ".join([*sys.argv, os.environ.get("GUNICORN_CMD_ARGS", "")])
    numbers = re.findall(r"(?<!\S)(?:--workers|-w)[ =]?([0-9]+)(?!\S)", arguments)
    numbers += [os.environ.get(name, "") for name in ("WEB_CONCURRENCY", "UVICORN_WORKERS", "GRANIAN_WORKERS")]
    return max([1, *[int(number) for number in numbers if re.fullmatch("[0-9]+", number)]])


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
