"""The routes of an app, and what is checked about its limits when it starts.

Routes are in routers, mounts, hosts, mounted apps, and in FastAPI's nested routers. This module only reads apps and
never decides about a request: a route that it does not understand is still limited. A mistake that turns a limit off,
or lets clients evade it, is logged once, with a link to the remedy.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any
from weakref import WeakSet

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Host, Mount, Router, WebSocketRoute, compile_path
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from ..keys import KeyFunction, cookie, header, user
from ..keys.path_patterns import MAX_DEPTH, example_path, nested_apps, readings, route_path, wider_than
from ..logs import warn_once
from ..stores import MemoryStore
from .plan import RuleTable
from .rules import CompiledRule

_REST = "/{path:path}"


@dataclass(frozen=True, slots=True)
class RouteMiddleware:
    """A middleware around a route, and its place: the path of its mount, or the methods and path of its route.

    ``base`` is the path below which it sees requests.
    """

    place: str
    base: str
    app: Any


@dataclass(frozen=True, slots=True)
class AppRoute:
    """A route: its whole path, its methods (``None``: any), the middlewares around it, and FastAPI's dependencies.

    An app that is not a router is one route, for all paths below its own. ``host`` is that of the ``Host`` around it.
    """

    path: str
    methods: frozenset[str] | None
    is_websocket: bool
    middlewares: tuple[RouteMiddleware, ...]
    dependencies: tuple[Any, ...] = ()
    endpoint: Any = None
    host: str = ""

    @property
    def place(self) -> str:
        """Its methods, host and path, after which limits on it are named."""
        return place_text(self.host + self.path, self.methods)


def walk(app: Any, *, builds: bool = False) -> Iterator[AppRoute]:
    """All routes of an app, in the order in which they are tried; those of an app that is mounted in itself, once.

    A Starlette app that has not been called yet has no middleware: with ``builds``, its middleware is built here.
    """
    return _walk(app, AppRoute("", None, False, ()), (), builds)


def _walk(app: Any, around: AppRoute, routers: tuple[Router, ...], builds: bool) -> Iterator[AppRoute]:
    """The routes of an app in these routers; ``around`` has the path of its mounts, its host and its middlewares."""
    around, core = _unwrapped(app, around, around.path, builds)
    if not isinstance(core, Router):
        methods = frozenset({"GET", "HEAD"}) if isinstance(core, StaticFiles) else around.methods
        yield replace(around, path=around.path + _REST, methods=methods, endpoint=core)
    elif not any(core is router for router in routers):
        for route in core.routes:
            yield from _routes(route, around, (*routers, core), builds)


def _routes(route: Any, around: AppRoute, routers: tuple[Router, ...], builds: bool) -> Iterator[AppRoute]:
    path = getattr(route, "path", None)
    if hasattr(route, "effective_route_contexts"):  # a router that FastAPI includes
        for context in route.effective_route_contexts():
            yield from _routes(context.starlette_route or context, around, routers, builds)
    elif isinstance(route, Mount):
        yield from _walk(route.app, replace(around, path=around.path + route.path), routers, builds)
    elif isinstance(route, Host):
        yield from _walk(route.app, replace(around, host=route.host), routers, builds)
    elif isinstance(path, str) and path[:1] in ("", "/"):  # a route of the program's own may have another path, or none
        found = replace(
            around,
            path=around.path + path,
            methods=frozenset(getattr(route, "methods", None) or ()) or None,
            is_websocket=isinstance(route, WebSocketRoute),
            dependencies=tuple(_dependencies(getattr(route, "dependant", None))),
            endpoint=getattr(route, "endpoint", None),
        )
        yield _unwrapped(getattr(route, "app", None), found, around.path, builds)[0]


def _unwrapped(app: Any, around: AppRoute, base: str, builds: bool) -> tuple[AppRoute, Any]:
    """What is around an app, with the middlewares of the app, and what is inside all of them."""
    middlewares = list(around.middlewares)
    for _ in range(MAX_DEPTH):
        if isinstance(app, Starlette):
            if app.middleware_stack is None and not builds:
                middlewares += [RouteMiddleware(around.place, base, each) for each in app.user_middleware]
            app = app.middleware_stack or (app.build_middleware_stack() if builds else app.router)
        elif isinstance(app, Router) or getattr(app, "app", None) is None:
            own = nested_apps(getattr(app, "middleware_stack", None))  # a router may have middlewares, too
            middlewares += [RouteMiddleware(around.place, base, each) for each in own if hasattr(each, "app")]
            break
        else:
            middlewares.append(RouteMiddleware(around.place, base, app))
            app = app.app
    return replace(around, middlewares=tuple(middlewares)), app


def _dependencies(dependant: Any) -> Iterable[Callable[..., Any]]:
    """The functions that FastAPI calls before the endpoint, at any depth."""
    for each in getattr(dependant, "dependencies", ()):
        yield each.call
        yield from _dependencies(each)


# Places, after which limits are named


def place_text(path: str, methods: Iterable[str] | None) -> str:
    """The methods and path of a route as one text."""
    return " ".join([*sorted({*(methods or ())} - {"HEAD"}), path])


def place_of_middleware(middleware: Any, router: Any) -> str | None:
    """The place of a middleware behind a router; ``None`` if it is not behind it."""
    return next((each.place for route in walk(router) for each in route.middlewares if each.app is middleware), None)


# Templates of requests


def templates_of(app: Any) -> Callable[[Scope], str | None]:
    """A function that returns the template of the route of a request, such as ``/users/{id}``, for hooks.

    It returns ``None`` if no route takes its path. A path that a route takes with another method has its template, as
    the app answers 405. Routes are read at first use: those of the outermost router that the request has reached, or of
    ``app``, which the middleware wraps.
    """
    routes: list[tuple[AppRoute, re.Pattern[str]]] = []

    def template_of(scope: Scope) -> str | None:
        if not routes:
            routes.extend(_with_patterns(scope.get("router") or scope.get("app") or app))
        path = route_path({**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))})
        is_websocket, method, of_path = scope["type"] == "websocket", scope.get("method"), None
        for route, pattern in routes:
            is_of_kind = route.methods is None if is_websocket else not route.is_websocket
            if is_of_kind and pattern.match(path):
                if route.methods is None or method in route.methods:
                    return route.path
                of_path = of_path or route.path
        return of_path

    return template_of


def _with_patterns(app: Any) -> Iterator[tuple[AppRoute, re.Pattern[str]]]:
    for route in walk(app):
        with suppress(AssertionError, ValueError):  # two parameters of one name, one of a mount and one within it
            yield replace(route, middlewares=()), _compiled(route.path)[0]  # they are around this, and would keep it


# Mistakes in valid rules


_CORS_INSIDE = "scripts in browsers cannot read refusals: add_middleware(CORSMiddleware, ...) after RateLimitMiddleware"


def warn_of(mistakes: Iterable[tuple[str, str]]) -> None:
    """Log mistakes, each once."""
    for section, text in mistakes:
        warn_once(section, text)


def find_mistakes(table: RuleTable, app: Any) -> Iterator[tuple[str, str]]:
    """The mistakes in valid rules for an app: the section of the docs on warnings, and the text of each.

    With many routes and rules, it takes long: an override, which changes no path, is not looked at.
    """
    routes = list(walk(app))
    for number, rule in enumerate([*table.rules, *[each for each in table.charging if each.source is None]]):
        reason = _why_unused(rule, table.rules[:number] if rule.is_final else table.rules, routes)
        if reason is not None:
            yield "a-rule-that-never-applies", f"{rule!r} {reason}"
    if any(isinstance(each.app, CORSMiddleware) for route in routes for each in route.middlewares):
        yield "a-cors-middleware-inside-of-the-limit", _CORS_INSIDE
    yield from find_evaded(table.charging, routes)


def find_evaded(rules: Sequence[CompiledRule], routes: Sequence[AppRoute]) -> Iterator[tuple[str, str]]:
    """The limits of routes, by rules and by dependencies, that a client evades by inventing keys.

    They are in the form of ``find_mistakes``.
    """
    evaded: dict[str, CompiledRule] = {}
    for route in routes:
        matching = [rule for rule in rules if not rule.shadow and _may_match(rule, route)]
        limits = next(([rule] for rule in matching if rule.is_final), matching)
        limits += [rule for each in route.dependencies if hasattr(each, "limit_texts") for rule in each.rules]
        if limits and all(_can_be_invented(one.key) or (one.is_final and isinstance(one.key, user)) for one in limits):
            evaded.setdefault(limits[0].name, limits[0])
    for name, rule in evaded.items():
        problem = f"nothing limits clients who invent {rule.key!r}, as of {name!r}, or leave it out if they can"
        example = 'Rule("/{path:path}", "300/minute", key=client_ip())'
        yield "a-key-that-clients-leave-out", f"{problem}: add one by address, {example}, and let no rule decide alone"


def _why_unused(rule: CompiledRule, others: Sequence[CompiledRule], routes: Sequence[AppRoute]) -> str | None:
    """Why a rule never applies to any request, if it does not; the ``others`` may decide alone."""
    final = next((each for each in others if each.is_final and _precludes(each, rule)), None)
    if final is not None:
        return f"never applies, because {final!r} decides alone: narrow its path, or put this one first, with only=True"
    taking = [route for route in routes if _may_match(rule, route)]
    if all(map(_is_for_all_pages, taking)):  # also if none takes it; to compare all paths takes long
        taken = {rule.path, *[route.path for route in taking]} if taking else set()
        others_paths = [route.path for route in routes if route.path not in taken]
        near = get_close_matches(rule.path, others_paths, 1, 0.8 if taking else 0.5)
        hints = [f" The nearest route is {route.place!r}." for route in routes if route.path in near]
        if hints or not taking:
            return f"matches no route of the app: are its path and methods complete?{''.join(hints[:1])}"
    wider = None if rule.is_exemption else wider_than(rule.path, [route.path for route in routes])
    if wider is not None:
        return f"does not apply to all paths of the route, as {wider.partition('{')[0]}+1: write its path, {wider!r}"
    if rule.messages and rule.methods is not None and "" not in rule.methods:
        return "limits no messages, because a WebSocket has no method: leave out methods"
    return None


def _is_for_all_pages(route: AppRoute) -> bool:
    """Whether a route takes reads of any path, mistyped ones too; one that takes more methods may be a proxy."""
    return re.fullmatch(r"/\{\w+:path\}", route.path) is not None and {"GET", "HEAD"} == set(route.methods or ())


def _precludes(final: CompiledRule, rule: CompiledRule) -> bool:
    """Whether a rule that decides alone matches every request that another one does, as an example of its path."""
    example = example_path(rule.path)
    has_methods = final.methods is None or (rule.methods is not None and rule.methods <= final.methods)
    return not rule.shadow and has_methods and example is not None and final.pattern.match(example) is not None


_compiled = lru_cache(maxsize=4096)(compile_path)


def _may_match(rule: CompiledRule, route: AppRoute) -> bool:
    """Whether a rule may apply to a request for a route; true if that is uncertain.

    A handshake has no method, and a preflight is OPTIONS.
    """
    if rule.methods is not None:
        methods = {""} if route.is_websocket else {*(route.methods or rule.methods), "OPTIONS"}
        if not rule.methods & methods:
            return False
    of_rule, of_route = example_path(rule.path), example_path(route.path)
    if of_rule is None or of_route is None:
        return True
    paths = [of_route] if rule.is_exemption else readings(of_route)
    return any(map(rule.pattern.match, paths)) or _compiled(route.path)[0].match(of_rule) is not None


def _can_be_invented(key: KeyFunction) -> bool:
    """Whether a client can have a new key for each request, by a header or a cookie."""
    returned = type(getattr(getattr(key, "dependency", None), "dependency", None))  # a scheme of FastAPI checks nothing
    is_scheme = returned.__module__.startswith("fastapi.security.")
    return is_scheme or isinstance(key, (header, cookie)) or any(map(_can_be_invented, getattr(key, "parts", ())))


# Memory that is not shared


_in_memory: WeakSet[Any] = WeakSet()  # the middlewares without a store that have started


def equal_to(middleware: Any) -> Any:
    """An earlier middleware of the same app that has no store either, and equal arguments, or else this one.

    Some frameworks build one for each route. They share one memory, because each would let the whole quota pass.
    """
    equal = next((each for each in _in_memory if each.arguments == middleware.arguments), middleware)
    _in_memory.add(middleware)
    return equal


# Several workers


def warn_of_workers(store: object) -> None:
    """Warn about a memory store in one of several workers: each worker would let the whole quota pass."""
    if isinstance(store, MemoryStore) and (workers := number_of_workers()) > 1:
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
