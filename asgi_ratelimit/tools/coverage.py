"""Coverage: every route of an app, with the limits that apply to it; and mistakes in valid limits.

These are costs that never pass, rules without requests, and limits that a client evades.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..errors import ConfigurationError
from ..inbound.config import LimitsFile
from ..inbound.dependency import RateLimit, mistakes, named_rules, without_middleware
from ..inbound.middleware import NO_LIMITS, RateLimitMiddleware
from ..inbound.plan import USUAL, RuleTable
from ..inbound.routes import AppRoute, RouteMiddleware, find_evaded, find_mistakes, walk
from ..inbound.rules import CompiledRule, owned_quotas
from ..inbound.user_functions import Failures
from ..keys.path_patterns import example_path
from ..quota_text import as_text
from ..quotas import InFlight, Quota
from ..stores import MemoryStore
from ..stores.base import register

# The methods that are checked for a route that takes any.
METHODS = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT")


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
    return covered(routes_of(app))


def routes_of(app: Any) -> list[AppRoute]:
    """Every route of an app, with its middlewares, which are built for this if the app has not been called yet."""
    return list(walk(app, builds=True))


def covered(routes: Sequence[AppRoute]) -> list[Covered]:
    """These routes of an app, with their limits."""
    named = named_rules(routes)
    return [each for route in routes if not _is_of_fastapi(route) for each in _covered(route, named)]


# The rules of each dependency, under the names that they have in the app.
_Named: TypeAlias = Mapping[RateLimit, Sequence[CompiledRule]]


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


# The limits of a route, whether a rule exempts it, and the limits that never had a key.
_Limits: TypeAlias = tuple[tuple[str, ...], bool, tuple[str, ...]]


def _limits(route: AppRoute, method: str, named: _Named) -> _Limits:
    """The limits of a route for one method."""
    rules, is_exempt = list[CompiledRule](), False
    for middleware in route.middlewares:
        if isinstance(middleware.app, RateLimitMiddleware):
            table, scopes = middleware.app.rule_table, list(_scopes(route, middleware, method))
            plans = [plan.rules if plan else () for plan in map(table.plan_for, scopes)]
            charging = [rule for rule in plans[0] if all(rule in others for others in plans) and not rule.shadow]
            rules += [named_rule(rule, middleware) for rule in charging if rule.quota or route.is_websocket]
            is_exempt = is_exempt or all(map(table.exempts, scopes))
    rules += [rule for call in route.dependencies if isinstance(call, RateLimit) for rule in named[call]]
    texts: tuple[list[str], list[str]] = ([], [])
    for rule in rules:
        quotas = quotas_as_text(rule, with_messages=route.is_websocket)
        texts[rule.key_watch.is_silent].append(f"{rule.name}: {quotas}")
    return tuple(texts[0]), is_exempt and not any(rule.quota for rule in rules), tuple(texts[1])


def named_rule(rule: CompiledRule, middleware: RouteMiddleware) -> CompiledRule:
    """A rule of a middleware, with its name of after the first request: by the place, if neither has a name."""
    prefix, has_name = f"{DEFAULT_NAME} {middleware.place}", rule.source is not None and rule.source.name is not None
    if has_name or not middleware.app.is_unnamed or not middleware.place or rule.name.startswith(prefix):
        return rule
    return replace(rule, name=rule.name.replace(DEFAULT_NAME, prefix, 1))


def _scopes(route: AppRoute, middleware: RouteMiddleware, method: str) -> Iterator[Scope]:
    """Requests for a route as a middleware around it would see them.

    A rule for only some paths of the route does not match both of them: one has dots in its parameters. The other one
    has none, and slashes where the route allows them.
    """
    kind = "websocket" if route.is_websocket else "http"
    for rest, dot in (":path}", "."), (":path}/more", ""):
        templates = [text.replace(":path}", rest) for text in (route.path, middleware.base)]
        path, base = [(example_path(each) or each).replace("any.", f"any{dot}") for each in templates]
        scope = {"type": kind, "path": path.removeprefix(base), "root_path": "", "headers": []}
        yield {**scope, "method": method} if method else scope


def quotas_as_text(rule: CompiledRule, *, with_messages: bool = True) -> str:
    """The quotas of a rule as people write them, or the name of the function that returns them; then its messages'."""
    own = as_text(rule.constant_quotas) if rule.constant_quotas else ""
    if callable(rule.quota):
        own = f"by {getattr(rule.quota, '__name__', repr(rule.quota))}"
    messages = f"messages {as_text(rule.messages)}" if rule.messages and with_messages else ""
    return ", ".join(filter(None, [own, messages]))


def _is_of_fastapi(route: AppRoute) -> bool:
    return str(getattr(route.endpoint, "__module__", "")).partition(".")[0] == "fastapi"


# Mistakes in valid limits


def findings(quotas: Sequence[Quota], cost: float = 1) -> Iterator[str]:
    """The mistakes in quotas that are charged together, each at a cost."""
    for quota in quotas:
        if cost > quota.most and not isinstance(quota, InFlight):  # a place is one, whatever the cost
            yield f"a cost of {cost:g} never passes {as_text(quota)!r}, which gives at most {quota.most:g} at once"


def rules_of(routes: Sequence[AppRoute]) -> tuple[list[CompiledRule], list[str]]:
    """The rules of an app's middlewares and dependencies that charge anything, and the mistakes in them."""
    rules, problems, limiting = list[CompiledRule](), misplaced(routes), _limiting(routes)
    for middleware in limiting:
        table = middleware.app.rule_table
        rules += [named_rule(rule, middleware) for rule in table.charging]
        problems += [text for _, text in find_mistakes(table, middleware.app.app)]
    problems += [text for _, text in find_evaded((), without_middleware(routes))]
    rules += [rule for named in named_rules(routes).values() for rule in named]
    problems += [NO_LIMITS] if not rules and all(each.app.limits_nothing for each in limiting) else []
    return rules, [*problems, *_findings_of(rules)]


def misplaced(routes: Sequence[AppRoute]) -> list[str]:
    """The limits of an app that never apply where they stand, and those that share buckets they do not agree on."""
    problems, stores = list(map(str, mistakes(routes))), defaultdict[str, MemoryStore](MemoryStore)
    for middleware in _limiting(routes):  # one store for each server, which two middlewares may name by the same URL
        table, store = middleware.app.rule_table, middleware.app.store
        try:
            quotas = owned_quotas([named_rule(rule, middleware) for rule in table.declared])
            register(stores[str(id(store)) if store.in_process else repr(store)], middleware.app, quotas)
        except ConfigurationError as error:
            problems.append(str(error))
    return problems


def _limiting(routes: Sequence[AppRoute]) -> list[RouteMiddleware]:
    """The middlewares of this package around routes."""
    middlewares = {id(each.app): each for route in routes for each in route.middlewares}
    return [each for each in middlewares.values() if isinstance(each.app, RateLimitMiddleware)]


def rules_of_file(path: str) -> tuple[list[CompiledRule], list[str]]:
    """The rules of a file of limits that charge anything, and the mistakes in them.

    Raises ``ConfigurationError`` for an invalid file.
    """
    table = RuleTable(LimitsFile(path, USUAL).options, Failures())
    problems = [text for _, text in find_mistakes(table, None)] if table.limits else ['no limit: quota = "100/minute"']
    return [*table.charging], [*problems, *_findings_of(table.charging)]


def _findings_of(rules: Sequence[CompiledRule]) -> Iterator[str]:
    for rule in rules:
        cost = 1 if callable(rule.cost) else rule.cost
        yield from [f"{rule.name}: {each}" for each in findings(rule.constant_quotas, cost)]
