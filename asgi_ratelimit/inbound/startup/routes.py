"""The routes of an app, wherever they are: in routers, mounts, hosts, apps within apps, and what FastAPI nests.

It only reads, and never decides about a request: what it does not understand may not go unlimited for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

from starlette.applications import Starlette
from starlette.convertors import CONVERTOR_TYPES
from starlette.routing import Host, Mount, Router, WebSocketRoute, compile_path

_REST = "/{path:path}"


@dataclass(frozen=True, slots=True)
class Layer:
    """A middleware, and where it stands: by the path of its mount, or the methods and path of its route.

    ``base`` is the path below which it sees what is asked for.
    """

    place: str
    base: str
    app: Any


@dataclass(frozen=True, slots=True)
class Found:
    """A route: its whole path, its methods (``None``: any), what is around it, and what FastAPI asks before it runs.

    An app that is no router is one route, for all paths below its own.
    """

    path: str
    methods: frozenset[str] | None
    is_websocket: bool
    layers: tuple[Layer, ...]
    dependencies: tuple[Callable[..., Any], ...] = ()
    endpoint: Any = None


_Layers: TypeAlias = tuple[Layer, ...]

DEEPEST = 100
"""How many apps may be around one another before it is taken for a circle."""


def walk(app: Any, base: str = "", layers: _Layers = (), *, builds: bool = False) -> Iterator[Found]:
    """All routes of an app, in the order in which they are tried.

    An app of Starlette's that has not been called yet has no middleware: with ``builds`` it is made for this purpose.
    """
    layers, core = _unwrapped(app, base, base, layers, builds)
    if isinstance(core, Router):
        for route in core.routes:
            yield from _routes(route, base, layers, builds)
    else:
        yield Found(base + _REST, None, False, layers, endpoint=core)


def place_of(middleware: Any, router: Any) -> str | None:
    """Where a middleware stands behind a router; ``None`` where it is not found."""
    layers = (layer for found in walk(router) for layer in found.layers)
    return next((layer.place for layer in layers if layer.app is middleware), None)


def _unwrapped(app: Any, place: str, base: str, layers: _Layers, builds: bool) -> tuple[_Layers, Any]:
    """The middlewares around an app, outermost first, and what is inside of them all."""
    for _ in range(DEEPEST):
        if isinstance(app, Starlette):
            app = app.middleware_stack or (app.build_middleware_stack() if builds else app.router)
        elif isinstance(app, Router) or getattr(app, "app", None) is None:
            break
        else:
            layers, app = (*layers, Layer(place, base, app)), app.app
    return layers, app


def _routes(route: Any, base: str, layers: _Layers, builds: bool) -> Iterator[Found]:
    if hasattr(route, "effective_route_contexts"):  # a router that FastAPI includes, as it stands there
        for context in route.effective_route_contexts():
            yield from _routes(context.starlette_route or context, base, layers, builds)
    elif isinstance(route, Mount):
        yield from walk(route.app, base + route.path, layers, builds=builds)
    elif isinstance(route, Host):
        yield from walk(route.app, base, layers, builds=builds)
    elif hasattr(route, "path"):
        yield _found(route, base, layers, builds)


def _found(route: Any, base: str, layers: _Layers, builds: bool) -> Found:
    path = base + route.path
    methods = frozenset(route.methods) if getattr(route, "methods", None) else None
    place = " ".join([*sorted((methods or frozenset()) - {"HEAD"}), path])
    layers, _ = _unwrapped(getattr(route, "app", None), place, base, layers, builds)
    calls = tuple(_calls(getattr(route, "dependant", None)))
    return Found(path, methods, isinstance(route, WebSocketRoute), layers, calls, route.endpoint)


def _calls(dependant: Any) -> Iterable[Callable[..., Any]]:
    """What FastAPI calls before the endpoint, at any depth."""
    for each in getattr(dependant, "dependencies", ()):
        yield each.call
        yield from _calls(each)


_EXAMPLES: dict[str, Any] = {"int": 987654321, "float": 98765.5, "uuid": UUID(int=2**127)}


@lru_cache(maxsize=1024)
def example(path: str) -> str | None:
    """A path that a template stands for, and hardly any other one; ``None`` where a parameter is of an unknown kind."""
    _, form, convertors = compile_path(path)
    made = {}
    for name, convertor in convertors.items():
        kind = next((kind for kind, known in CONVERTOR_TYPES.items() if known is convertor), None)
        if kind not in ("str", "path", *_EXAMPLES):
            return None
        made[name] = convertor.to_string(_EXAMPLES.get(kind, f"any.{name}"))
    return form.format(**made)
