"""Proof of coverage: every route of an app, with the limits that apply to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from ..inbound.dependency import RateLimit
from ..inbound.lines import Line
from ..inbound.middleware import RateLimitMiddleware
from ..inbound.startup.routes import Found, Layer, example, walk
from ..quotas import FixedWindow, Quota, RollingWindow, in_units

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
"""Those that a route is asked about which takes any."""


@dataclass(frozen=True, slots=True)
class Covered:
    """A route, or some methods of one, and the limits that every request for it meets.

    ``path`` is the whole path, ``methods`` are sorted, without HEAD, and empty where the route takes any. ``limits``
    are texts for people, in the order in which they apply; ``is_exempt`` says that a rule lets the route off.
    """

    path: str
    methods: tuple[str, ...]
    is_websocket: bool
    limits: tuple[str, ...]
    is_exempt: bool

    @property
    def is_covered(self) -> bool:
        """Whether somebody has thought of it: it is limited, or exempt by a rule."""
        return bool(self.limits) or self.is_exempt


def coverage(app: Any) -> list[Covered]:
    """Every route of an app, in routers, mounts and apps within it, with its limits by middleware and dependencies.

    A rule counts for a route if it applies to all of its paths; rules in shadow do not count. The pages that FastAPI
    makes by itself (``/docs`` and the like) are left out. The app is not called, and not changed.
    """
    found = [each for each in walk(app, builds=True) if not _is_of_fastapi(each)]
    return [covered for each in found for covered in _covered(each)]


def _covered(found: Found) -> Iterator[Covered]:
    """One for each set of methods that have the same limits."""
    methods: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    asked = [""] if found.is_websocket else sorted(found.methods or METHODS)
    for method in asked:
        if method != "HEAD" or asked == ["HEAD"]:
            methods.setdefault(_limits(found, method), []).append(method)
    for (limits, is_exempt), each in methods.items():
        takes_any = found.methods is None and len(methods) == 1
        yield Covered(found.path, () if takes_any else tuple(each), found.is_websocket, limits, is_exempt)


def _limits(found: Found, method: str) -> tuple[tuple[str, ...], bool]:
    limiting = [layer for layer in found.layers if isinstance(layer.app, RateLimitMiddleware)]
    scopes = [_scope(found, layer, method) for layer in limiting]
    terms = [layer.app.rulebook.terms(scope) for layer, scope in zip(limiting, scopes)]
    lines = [line for each in terms if each for line in each.lines if line.quota and not line.shadow]
    lines += [line for call in found.dependencies if isinstance(call, RateLimit) for line in call.lines]
    is_exempt = any(layer.app.rulebook.exempts(scope) for layer, scope in zip(limiting, scopes))
    return tuple(map(_told, lines)), is_exempt and not lines


def _scope(found: Found, layer: Layer, method: str) -> Scope:
    """A request for a route as a middleware around it would see it."""
    path, base = (example(each) or each for each in (found.path, layer.base))
    kind = "websocket" if found.is_websocket else "http"
    scope = {"type": kind, "path": path.removeprefix(base), "root_path": "", "headers": []}
    return {**scope, "method": method} if method else scope


def _told(line: Line) -> str:
    if callable(line.quota):
        return f"{line.name}: by {getattr(line.quota, '__name__', repr(line.quota))}"
    return f"{line.name}: {'; '.join(map(_written, line.quota))}"


def _written(quota: Quota) -> str:
    """A quota in the form in which people write it."""
    count, unit = in_units(quota.period)
    text = f"{quota.limit:g}/{unit}" if count == 1 else f"{quota.limit:g} per {count:g} {unit}s"
    if isinstance(quota, (FixedWindow, RollingWindow)):
        return f"{text} {'fixed' if isinstance(quota, FixedWindow) else 'rolling'}"
    return text if quota.burst == quota.limit else f"{text} burst {quota.burst:g}"


def _is_of_fastapi(found: Found) -> bool:
    return str(getattr(found.endpoint, "__module__", "")).partition(".")[0] == "fastapi"
