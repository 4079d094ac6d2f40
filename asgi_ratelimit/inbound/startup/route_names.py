"""Names of limits after their routes: a limit without a name of its own stands on one route."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any, TypeAlias, TypeGuard

from starlette.types import Scope

from ...buckets import UNNAMED
from ...errors import ConfigurationError
from ..functions.lacking_depends import NeedsDepends
from .app_routes import mounts_of, place_text, walk

_EXAMPLE = 'RateLimit("5/minute", name="login")'

NamesByPlace: TypeAlias = dict[str, list[str]]
"""The names of a limit's rules at each place where it is used."""


class RouteNames:
    """The names of a limit's rules: their own, or names made of the place of the route."""

    def __init__(self, own: Sequence[str]) -> None:
        self._own = own
        self.current = own
        """The names as of the last ``follow``."""
        self.unnamed = own.count(UNNAMED)
        """How many rules are named after their route."""
        self._route: tuple[object, object] | None = None

    def after(self, place: str, number: int = 1) -> list[str]:
        """A name for each rule: its own, or the place, with a number if other limits there are named after it too."""
        numbers = count(number)
        return [_numbered(place, next(numbers)) if name == UNNAMED else name for name in self._own]

    def follow(self, limit: NamedLimit, scope: Scope) -> None:
        """Name the limit after the route of this request; ``ConfigurationError`` if it is on several routes."""
        router, route = scope.get("router"), scope.get("route")
        if self._route is not None and self._route[0] is router and self._route[1] is route:
            return
        names = names_by_limit(router).get(limit) or self._names_on(route, scope)
        _require_one_place(limit, names)
        ((place, own),) = names.items()
        if self._route is not None and self.current != own:
            raise _needs_name(limit, [self.current[0], place])
        self._route, self.current = (router, route), own

    def _names_on(self, route: Any, scope: Scope) -> NamesByPlace:
        """The names on a route that is not among those of the app; ``ConfigurationError`` if there is no route."""
        path = getattr(route, "path", None)
        if path is None:
            raise ConfigurationError(f"a RateLimit that stands on no route needs a name: {_EXAMPLE}")
        place = place_text(mounts_of(scope) + path, getattr(route, "methods", None))
        return {place: self.after(place)}


class NamedLimit(NeedsDepends):
    """A limit as a dependency, and its ``names``."""

    names: RouteNames


def require_names(app: Any) -> None:
    """Raise ``ConfigurationError`` for a limit without a name that is used on several routes of an app."""
    for limit, names in names_by_limit(app).items():
        _require_one_place(limit, names)


def names_by_limit(app: Any) -> dict[NamedLimit, NamesByPlace]:
    """The names of each limit that is named after its routes in an app, which no two limits share.

    Routes of one path under several hosts are one place for a limit: that under the first of these hosts.
    """
    names: dict[NamedLimit, NamesByPlace] = {}
    numbers: Counter[str] = Counter()
    seen: set[tuple[NamedLimit, str]] = set()
    for route in walk(app):
        path = place_text(route.path, route.methods)
        for limit in filter(_is_unnamed, route.dependencies):
            if (limit, path) not in seen:
                seen.add((limit, path))
                names.setdefault(limit, {})[route.place] = limit.names.after(route.place, numbers[route.place] + 1)
                numbers[route.place] += limit.names.unnamed
    return names


def _is_unnamed(dependency: object) -> TypeGuard[NamedLimit]:
    return isinstance(dependency, NamedLimit) and dependency.names.unnamed > 0


def _numbered(place: str, number: int) -> str:
    return place if number == 1 else f"{place} {number}"


def _require_one_place(limit: NamedLimit, names: NamesByPlace) -> None:
    if len(names) > 1:
        raise _needs_name(limit, list(names))


def _needs_name(limit: NamedLimit, places: Sequence[str]) -> ConfigurationError:
    several = " and ".join(map(repr, places[:2]))
    return ConfigurationError(f"{limit!r} is used on several routes, such as {several}, and needs a name: {_EXAMPLE}")
