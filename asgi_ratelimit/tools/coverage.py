"""Coverage: every route of an app, with the limits that apply to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..inbound.dependency import RateLimit, named_rules
from ..inbound.middleware import RateLimitMiddleware
from ..inbound.rules import CompiledRule
from ..inbound.startup.app_routes import AppRoute, RouteMiddleware, example_path, walk
from ..quota_text import as_text

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
"""The methods that are checked for a route that takes any."""


@dataclass(frozen=True, slots=True)
class Covered:
    """A route, or some methods of one, and the limits that apply to every request for it.

    ``path`` is the whole path. ``methods`` are sorted, without HEAD, and empty if the route takes any. ``limits`` are
    readable texts, in the order in which they apply. ``is_exempt`` is true if a rule exempts the route, or at least the
    handshake of a WebSocket whose messages it limits. ``without_key`` are limits that limit nobody, because their key
    was ``None`` for all of their first 100 requests in this process.
    """

    path: str
    methods: tuple[str, ...]
    is_websocket: bool
    limits: tuple[str, ...]
    is_exempt: bool
    without_key: tuple[str, ...] = ()

    @property
    def is_covered(self) -> bool:
        """Whether it is limited, or exempt by a rule."""
        return bool(self.limits) or self.is_exempt


def coverage(app: Any) -> list[Covered]:
    """Every route of an app, in routers, mounts and apps within it, with its limits by middleware and dependencies.

    A rule counts for a route if it applies to all of its paths; shadow rules do not count. FastAPI's own pages
    (``/docs`` and the like) are omitted. The app is neither called nor changed.
    """
    routes = [route for route in walk(app, builds=True) if not _is_of_fastapi(route)]
    named = named_rules(app)
    return [covered for route in routes for covered in _covered(route, named)]


_Named: TypeAlias = Mapping[RateLimit, Sequence[CompiledRule]]
"""The rules of each dependency, under the names that they have in the app."""


def _covered(route: AppRoute, named: _Named) -> Iterator[Covered]:
    """One entry for each set of methods with the same limits."""
    methods_by_limits: dict[_Limits, list[str]] = {}
    candidates = [""] if route.is_websocket else sorted(route.methods or METHODS)
    for method in candidates:
        if method != "HEAD" or candidates == ["HEAD"]:
            methods_by_limits.setdefault(_limits(route, method, named), []).append(method)
    for (limits, is_exempt, without_key), methods in methods_by_limits.items():
        takes_any = route.methods is None and len(methods_by_limits) == 1
        listed = () if takes_any else tuple(methods)
        yield Covered(route.path, listed, route.is_websocket, limits, is_exempt, without_key)


_Limits: TypeAlias = tuple[tuple[str, ...], bool, tuple[str, ...]]
"""The limits of a route, whether a rule exempts it, and the limits that never had a key."""


def _limits(route: AppRoute, method: str, named: _Named) -> _Limits:
    """The limits of a route for one method."""
    middlewares = [each for each in route.middlewares if isinstance(each.app, RateLimitMiddleware)]
    scopes = [_scope(route, each, method) for each in middlewares]
    plans = [each.app.rule_table.plan_for(scope) for each, scope in zip(middlewares, scopes)]
    charging = [named_rule(rule, each) for plan, each in zip(plans, middlewares) if plan for rule in plan.rules]
    enforced = [rule for rule in charging if not rule.shadow]
    rules = [rule for rule in enforced if rule.quota or (rule.messages and route.is_websocket)]
    rules += [rule for call in route.dependencies if isinstance(call, RateLimit) for rule in named[call]]
    is_exempt = any(each.app.rule_table.exempts(scope) for each, scope in zip(middlewares, scopes))
    silent = [rule for rule in rules if rule.key_watch.is_silent]
    limiting = [rule for rule in rules if not rule.key_watch.is_silent]
    texts, silent_texts = ([_limit_text(rule, route) for rule in some] for some in (limiting, silent))
    return tuple(texts), is_exempt and not any(rule.quota for rule in rules), tuple(silent_texts)


def named_rule(rule: CompiledRule, middleware: RouteMiddleware) -> CompiledRule:
    """A rule of a middleware, whose own quota is named after its place as soon as it has had a request there."""
    is_own = rule.source is None and rule.name == DEFAULT_NAME and middleware.app.is_unnamed
    return replace(rule, name=f"{DEFAULT_NAME} {middleware.place}") if is_own and middleware.place else rule


def _scope(route: AppRoute, middleware: RouteMiddleware, method: str) -> Scope:
    """A request for a route as a middleware around it would see it."""
    path, base = (example_path(each) or each for each in (route.path, middleware.base))
    kind = "websocket" if route.is_websocket else "http"
    scope = {"type": kind, "path": path.removeprefix(base), "root_path": "", "headers": []}
    return {**scope, "method": method} if method else scope


def _limit_text(rule: CompiledRule, route: AppRoute) -> str:
    return f"{rule.name}: {quotas_as_text(rule, with_messages=route.is_websocket)}"


def quotas_as_text(rule: CompiledRule, *, with_messages: bool = True) -> str:
    """The quotas of a rule as people write them, or the name of the function that returns them; then its messages'."""
    texts = []
    if callable(rule.quota):
        texts.append(f"by {getattr(rule.quota, '__name__', repr(rule.quota))}")
    elif rule.quota:
        texts.append(as_text(rule.quota))
    if rule.messages and with_messages:
        texts.append(f"messages {as_text(rule.messages)}")
    return ", ".join(texts)


def _is_of_fastapi(route: AppRoute) -> bool:
    return str(getattr(route.endpoint, "__module__", "")).partition(".")[0] == "fastapi"
