"""The routes of an app: in routers, mounts, hosts, mounted apps, and in FastAPI's nested routers.

This module only reads apps and never decides about a request: a route that it does not understand is still limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from ..stores.base import reference

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


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What is around a route: its host, the path of its mounts, and the middlewares and routers, the outermost first.

    With ``builds``, the middleware of a Starlette app is built.
    """

    builds: bool
    host: str = ""
    base: str = ""
    middlewares: tuple[RouteMiddleware, ...] = ()
    routers: tuple[Router, ...] = ()


MAX_DEPTH = 100
"""How many nested apps are followed before they are taken for a cycle."""


def walk(app: Any, *, builds: bool = False) -> Iterator[AppRoute]:
    """All routes of an app, in the order in which they are tried; those of an app that is mounted in itself, once.

    A Starlette app that has not been called yet has no middleware: with ``builds``, its middleware is built here.
    """
    return _walk(app, _Surroundings(builds))


def _walk(app: Any, around: _Surroundings) -> Iterator[AppRoute]:
    around, core = _unwrapped(app, around.host + around.base, around)
    if not isinstance(core, Router):
        yield AppRoute(around.base + _REST, None, False, around.middlewares, endpoint=core, host=around.host)
    elif not any(core is router for router in around.routers):
        around = replace(around, routers=(*around.routers, core))
        for route in core.routes:
            yield from _routes(route, around)


def _unwrapped(app: Any, place: str, around: _Surroundings) -> tuple[_Surroundings, Any]:
    """What is inside all middlewares of an app, and its surroundings; ``place`` is the place of these middlewares."""
    middlewares = []
    for _ in range(MAX_DEPTH):
        if isinstance(app, Starlette):
            app = app.middleware_stack or (app.build_middleware_stack() if around.builds else app.router)
        elif isinstance(app, Router) or getattr(app, "app", None) is None:
            break
        else:
            middlewares.append(RouteMiddleware(place, around.base, app))
            app = app.app
    return replace(around, middlewares=(*around.middlewares, *middlewares)), app


def _routes(route: Any, around: _Surroundings) -> Iterator[AppRoute]:
    path = getattr(route, "path", None)
    if hasattr(route, "effective_route_contexts"):  # a router that FastAPI includes
        for context in route.effective_route_contexts():
            yield from _routes(context.starlette_route or context, around)
    elif isinstance(route, Mount):
        yield from _walk(route.app, replace(around, base=around.base + route.path))
    elif isinstance(route, Host):
        yield from _walk(route.app, replace(around, host=route.host))
    elif isinstance(path, str) and path[:1] in ("", "/"):  # a route of the program's own may have another path, or none
        yield _app_route(route, around)


def _app_route(route: Any, around: _Surroundings) -> AppRoute:
    path = around.base + route.path
    methods = frozenset(route.methods) if getattr(route, "methods", None) else None
    inside, _ = _unwrapped(getattr(route, "app", None), place_text(around.host + path, methods), around)
    dependencies = tuple(_dependencies(getattr(route, "dependant", None)))
    is_websocket, endpoint = isinstance(route, WebSocketRoute), getattr(route, "endpoint", None)
    return AppRoute(path, methods, is_websocket, inside.middlewares, dependencies, endpoint, around.host)


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


@lru_cache(maxsize=1024)
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

    Routes are read at first use, and again when there are more. ``app`` is the app that the middleware wraps: it is
    used as long as the request has not reached a router, or another app.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._root: Callable[[], object] = lambda: None
        self._count = 0
        self._routes: Sequence[tuple[AppRoute, Pattern[str]]] = ()

    def of(self, scope: Scope) -> str | None:
        """The template for a request, before or after its routing; ``None`` if no route takes its path.

        A path that a route takes with another method has its template, as the app answers 405.
        """
        root = scope.get("router") or scope.get("app") or self._app
        count = len(getattr(root, "routes", ()))
        if root is not self._root() or count != self._count:
            self._root, self._count, self._routes = reference(root), count, tuple(_with_patterns(root))
        path = route_path({**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))})
        is_websocket, method, of_path = scope["type"] == "websocket", scope.get("method"), None
        for route, pattern in self._routes:
            is_of_kind = route.is_websocket is is_websocket or (is_websocket and route.methods is None)
            if is_of_kind and pattern.match(path):
                if is_websocket or route.methods is None or method in route.methods:
                    return route.path
                of_path = of_path or route.path
        return of_path


def _with_patterns(root: Any) -> Iterator[tuple[AppRoute, Pattern[str]]]:
    for route in walk(root):
        try:
            pattern, _, _ = compile_path(route.path)
        except (AssertionError, ValueError):  # two parameters of one name, one of a mount and one within it
            continue
        yield replace(route, middlewares=()), pattern  # which are around this object, and would keep it alive
