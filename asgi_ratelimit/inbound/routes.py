"""The routes of an app: in routers, mounts, hosts, mounted apps, and in FastAPI's nested routers.

This module only reads apps and never decides about a request: a route that it does not understand is still limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from re import Pattern
from typing import Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.convertors import CONVERTOR_TYPES
from starlette.routing import PARAM_REGEX, Host, Mount, Router, WebSocketRoute, compile_path
from starlette.types import Scope

from ..keys.path_patterns import route_path

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
    dependencies: tuple[Callable[..., Any], ...] = ()
    endpoint: Any = None
    host: str = ""

    @property
    def place(self) -> str:
        """Its methods, host and path, after which limits on it are named."""
        return place_text(self.host + self.path, self.methods)


MAX_DEPTH = 100
"""How many nested apps are followed before they are taken for a cycle."""


def walk(app: Any, *, builds: bool = False) -> Iterator[AppRoute]:
    """All routes of an app, in the order in which they are tried; those of an app that is mounted in itself, once.

    A Starlette app that has not been called yet has no middleware: with ``builds``, its middleware is built here.
    """
    return _walk(app, AppRoute("", None, False, ()), (), builds)


def _walk(app: Any, around: AppRoute, routers: tuple[Router, ...], builds: bool) -> Iterator[AppRoute]:
    """The routes of an app in these routers; ``around`` has the path of its mounts, its host and its middlewares."""
    around, core = _unwrapped(app, around, around.path, builds)
    if not isinstance(core, Router):
        yield replace(around, path=around.path + _REST, endpoint=core)
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
            app = app.middleware_stack or (app.build_middleware_stack() if builds else app.router)
        elif isinstance(app, Router) or getattr(app, "app", None) is None:
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


def place_of(middleware: Any, router: Any) -> str | None:
    """The place of a middleware behind a router; ``None`` if it is not behind it."""
    middlewares = (each for route in walk(router) for each in route.middlewares)
    return next((each.place for each in middlewares if each.app is middleware), None)


def root_of(scope: Scope) -> str:
    """The root path of a request, in which ``{}`` stands for each value: the same for all requests to a mount."""
    values = set(map(str, scope.get("path_params", {}).values()))
    root: str = scope.get("root_path", "")
    return "/".join(["{}" if part in values else part for part in root.split("/")])


# Examples of paths


_EXAMPLES: dict[str, Any] = {"int": 987654321, "float": 98765.5, "uuid": UUID(int=2**127)}


@lru_cache(maxsize=4096)
def example_path(path: str) -> str | None:
    """A path that this template matches, and hardly any other does; ``None`` if that is uncertain.

    So it is for a parameter of an unknown kind, and for two of one name, one of a mount and one within it.
    """
    try:
        _, _, convertors = compile_path(path)
    except ValueError:
        return None
    values = {}
    for name, convertor in convertors.items():
        kind = next((kind for kind, other in CONVERTOR_TYPES.items() if other is convertor), None)
        if kind not in ("str", "path", *_EXAMPLES):
            return None
        values[name] = convertor.to_string(_EXAMPLES.get(kind, f"any.{name}"))
    return PARAM_REGEX.sub(lambda parameter: values[parameter[1]], path)


# Templates of requests


class RouteTemplates:
    """The template of the route that a request is for, such as ``/users/{id}``, for hooks.

    Routes are read at first use: those of the outermost router that the request has reached, or of ``app``, which the
    middleware wraps.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._routes: list[tuple[AppRoute, Pattern[str]]] | None = None

    def of(self, scope: Scope) -> str | None:
        """The template for a request, before or after its routing; ``None`` if no route takes its path.

        A path that a route takes with another method has its template, as the app answers 405.
        """
        if self._routes is None:
            self._routes = list(_with_patterns(scope.get("router") or scope.get("app") or self._app))
        path = route_path({**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))})
        is_websocket, method, of_path = scope["type"] == "websocket", scope.get("method"), None
        for route, pattern in self._routes:
            is_of_kind = route.methods is None if is_websocket else not route.is_websocket
            if is_of_kind and pattern.match(path):
                if route.methods is None or method in route.methods:
                    return route.path
                of_path = of_path or route.path
        return of_path


def _with_patterns(app: Any) -> Iterator[tuple[AppRoute, Pattern[str]]]:
    for route in walk(app):
        with suppress(AssertionError, ValueError):  # two parameters of one name, one of a mount and one within it
            pattern, _, _ = compile_path(route.path)
            yield replace(route, middlewares=()), pattern  # they are around this object, and would keep it alive
