"""The template of the route that a request is for, such as ``/users/{id}``, for hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from re import Pattern
from typing import Any

from starlette.routing import compile_path
from starlette.types import Scope

from ...keys.path_patterns import route_path
from ...stores.base import reference
from .app_routes import AppRoute, walk


@dataclass(frozen=True, slots=True)
class _Template:
    """A route and the pattern of its whole path."""

    route: AppRoute
    pattern: Pattern[str]

    def matches(self, path: str, is_websocket: bool) -> bool:
        """Whether it takes this path, and this kind of connection."""
        route = self.route
        is_of_kind = route.is_websocket or route.methods is None if is_websocket else not route.is_websocket
        return is_of_kind and self.pattern.match(path) is not None


class RouteTemplates:
    """The templates of an app's routes, read at first use, and again when there are more routes.

    ``app`` is the app that the middleware wraps: it is used as long as the request has not reached a router, or another
    app.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._root: Callable[[], object] = lambda: None
        self._count = 0
        self._templates: Sequence[_Template] = ()

    def of(self, scope: Scope) -> str | None:
        """The template for a request, before or after its routing; ``None`` if no route takes its path."""
        root = scope.get("router") or scope.get("app") or self._app
        count = len(getattr(root, "routes", ()))
        if root is not self._root() or count != self._count:
            self._root, self._count, self._templates = reference(root), count, tuple(_templates(walk(root)))
        templates: Iterable[_Template] = self._templates
        if "endpoint" in scope:
            endpoint = scope["endpoint"]
            templates = [each for each in templates if each.route.endpoint is endpoint] or templates
        return _first(templates, scope)


def _first(templates: Iterable[_Template], scope: Scope) -> str | None:
    """The route that takes the request, or else one that would take it with another method, as the app answers 405."""
    path = route_path({**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))})
    is_websocket, method = scope["type"] == "websocket", scope.get("method")
    partial = None
    for each in templates:
        if each.matches(path, is_websocket):
            methods = each.route.methods
            if is_websocket or methods is None or method in methods:
                return each.route.path
            partial = partial or each.route.path
    return partial


def _templates(routes: Iterable[AppRoute]) -> Iterator[_Template]:
    for route in routes:
        try:
            pattern, _, _ = compile_path(route.path)
        except (AssertionError, ValueError):  # two parameters of one name, one of a mount and one within it
            continue
        yield _Template(replace(route, middlewares=()), pattern)
