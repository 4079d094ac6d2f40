"""``Depends(RateLimit("5/minute"))``: limits written next to the routes of FastAPI, which is not imported here."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from ..argument_errors import shows_use, used_as
from ..buckets import UNNAMED
from ..decision import Decision, OnError
from ..errors import ConfigurationError, QuotaError
from ..headers import delay, draft
from ..keys import KeyFunction
from ..keys.base import is_dependency
from ..limiter import as_store, checked_name
from ..overrides import limit_text, live_overrides, subscribe
from ..quota_text import QuotaLike, as_quotas, as_text
from ..stores import Store
from ..stores.name_owners import register
from .delays import receiving_of
from .enforcer import Enforcer
from .functions.dependency_key import DependencyKey, store_values
from .functions.function_arguments import CostFunction, QuotaFunction, address_key
from .functions.injected_parameters import InjectedParameters
from .functions.lacking_depends import (
    require_called_keys,
    require_no_default,
    require_no_factory,
)
from .limits import SCOPE_KEY, RateLimited, RequestLimits, own_answer_of, request_limits
from .name_conflicts import require_agreement
from .penalties.penalty import Penalty
from .plan import Plan
from .refusals import LimitUnavailable, OnLimited, checked_on_limited
from .rules import CompiledRule, Defaults, overridden, owned_quotas
from .startup.app_routes import walk
from .startup.app_stores import INHERITED_KEY, app_stores, enforcer_of
from .startup.route_names import NamedLimit, RouteNames, names_by_limit
from .startup.startup_warnings import warn_of_workers

_MOST_PLANS = 16
"""The most apps with one limit whose plans are kept."""

_QUOTA_OF_A_DEPENDENCY = (
    "let the dependency that returns the key set request.state.plan, and a function of the request return the quota, "
    "RateLimit(lambda request: QUOTAS[request.state.plan], key=Depends(current_user_id))"
)

_TOGETHER = 'RateLimit.together(RateLimit("5/minute"), RateLimit("100/minute", key=user()))'


class RateLimit(NamedLimit):
    """A limit as a FastAPI dependency: on a route, a router or an app, for HTTP and for WebSocket.

    ``quota``, ``key``, ``cost`` and ``penalty`` are as in ``Rule``, including functions. A ``key`` may also be the
    value of a dependency, ``key=Depends(current_user_id)``, which a middleware cannot use because it runs earlier. By
    default, ``key`` and ``store`` are those of the ``RateLimitMiddleware`` around the app, if there is one. Otherwise
    they are the client's address, and the store that ``set_store`` or ``app.state.rate_limit_store`` names, or else
    memory. One instance is one limit. A request is charged each time that FastAPI calls the limit: once, except with
    other scopes or ``use_cache=False``. Without a ``name``, a limit is named after its route. A limit that several
    routes share, as on a router, needs a name, and raises ``ConfigurationError`` without one.

    A request over the limit never reaches the endpoint; it is answered as by the middleware, or by ``on_limited``. With
    a ``max_delay`` in seconds it waits for its slot, if that is no further away. What its other limits had taken by
    then is given back. The dependency's value is the ``Decision``, or ``None`` if the limit did not apply.
    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for invalid arguments.
    """

    __signature__ = InjectedParameters()

    @shows_use(
        'RateLimit("5/minute", key=user()), and for two quotas RateLimit("5/minute; 100/hour")',
    )
    def __init__(
        self,
        quota: "QuotaLike | QuotaFunction",
        *,
        key: "KeyFunction | Any | None" = None,
        cost: "float | CostFunction" = 1,
        name: str | None = None,
        store: "Store | str | None" = None,
        on_error: "OnError | None" = None,
        penalty: "Penalty | None" = None,
        on_limited: "OnLimited | None" = None,
        max_delay: float = 0.0,
    ) -> None:
        if quota is None:
            raise QuotaError('a RateLimit needs a quota, not None: RateLimit("5/minute")')
        if is_dependency(quota):
            raise ConfigurationError(f"{quota!r} is not a quota: {_QUOTA_OF_A_DEPENDENCY}")
        name = UNNAMED if name is None else checked_name(name)
        self._own = None if store is None else enforcer_of(as_store(store))
        key = INHERITED_KEY if key is None else DependencyKey(key) if is_dependency(key) else key
        defaults = Defaults(name, key, cost, on_error, max_delay, fallback=address_key([key]))
        rule = defaults.compiled(quota, penalty)
        self._set_rules([replace(rule, on_limited=checked_on_limited(on_limited))])
        if self._own is not None and not self.names.unnamed:
            self._plan_with(self._own)

    @staticmethod
    def set_store(store: "Store | str | None") -> None:
        """Set the store, or its URL, of all limits that have neither a store nor a ``RateLimitMiddleware`` around them.

        ``app.state.rate_limit_store = store`` does the same for one app. Otherwise each app has a memory store of its
        own. Raises ``ConfigurationError`` for anything but a store.
        """
        app_stores.set_default(store)

    @classmethod
    def together(cls, *limits: "RateLimit") -> "RateLimit":
        """Several limits as one: a request takes from all of them or from none, in one call to the store.

        Raises ``ConfigurationError`` for no limits, and for limits in different stores or at odds with each other.
        """
        wrong = [limit for limit in limits if not isinstance(limit, RateLimit)]
        if wrong:
            raise ConfigurationError(f"limits that are taken together are of RateLimit, not {wrong[0]!r}: {_TOGETHER}")
        if not limits:
            raise ConfigurationError(f"RateLimit.together() needs at least one RateLimit: {_TOGETHER}")
        count = len({id(limit._own.store) if limit._own else None for limit in limits})
        if count != 1:
            raise ConfigurationError(f"limits that are taken together need one store, not {count}: {_TOGETHER}")
        together = copy(limits[0])
        together._set_rules([rule for limit in limits for rule in limit.rules])
        require_agreement([rule for rule in together.rules if rule.name != UNNAMED])
        return together

    def _set_rules(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self.names = RouteNames([rule.name for rule in rules])
        self._plans: dict[Enforcer, tuple[KeyFunction, Plan]] = {}
        """The plan of the limit behind the enforcer of each app, and the enforcer's key at that time."""
        keys = dict.fromkeys([rule.key for rule in rules if isinstance(rule.key, DependencyKey)])
        self.dependency_keys = {f"key_{number}": key for number, key in enumerate(keys, 1)}
        """The keys that dependencies return, by the names under which FastAPI passes them."""

    def __repr__(self) -> str:
        names = ["" if rule.name == UNNAMED else f", name={rule.name!r}" for rule in self.rules]
        each = [f"RateLimit({_quota_text(rule)}{name})" for rule, name in zip(self.rules, names)]
        return each[0] if len(each) == 1 else f"RateLimit.together({', '.join(each)})"

    @used_as(
        'RateLimit is not a decorator: @app.get("/", dependencies=[Depends(RateLimit("5/minute"))]): RateLimit.__call__'
    )
    async def __call__(self, connection: HTTPConnection, response: Response, **values: Any) -> Decision | None:
        """Take from the limit; FastAPI calls this method. Raises ``RateLimited`` if the take is refused.

        ``values`` are the keys that dependencies have returned.
        """
        scope = connection.scope
        store_values(scope, {self.dependency_keys[name]: value for name, value in values.items()})
        limits = request_limits(scope) or _started(scope)
        enforcer = self._own or limits.enforcer
        if limits.server_send is None and app_stores.replacement is not None:
            enforcer = app_stores.replacement
        if self.names.unnamed:
            self.names.follow(self, scope)
        key, plan = self._plans.get(enforcer, (None, None))
        if plan is None or key is not enforcer.key:
            plan = self._new_plan(enforcer, scope.get("app"))
        try:
            planned = ([], []) if limits.is_exempt else plan.evaluate(scope)
            takes, _ = planned if isinstance(planned, tuple) else await planned
        except LimitUnavailable as error:
            await limits.refund_all()
            raise RateLimited(limits, None).with_handler(scope) from error
        if not takes:
            return None
        receiving = receiving_of(connection) if plan.may_wait else None
        answer = enforcer.take(plan, takes, scope, receiving, limits.enforcer)
        decision, *_ = answer if isinstance(answer, list) else await answer
        if decision.shadow:
            return None
        limits.add([decision], enforcer.store)
        limits.waited += decision.delay
        if not decision.allowed:
            raise (await self._refusal(limits)).with_handler(scope)
        if limits.server_send is None:
            _report(limits, response)
        return decision

    async def _refusal(self, limits: RequestLimits) -> RateLimited:
        """The error for the last decision, after everything that the request had taken by then was given back."""
        decision = limits.decisions[-1]
        await limits.refund_all()
        own = {name: rule.on_limited for name, rule in zip(self.names.current, self.rules) if rule.on_limited}
        return RateLimited(limits, decision, own_answer_of(decision, own))

    def _new_plan(self, enforcer: Enforcer, app: Any) -> Plan:
        """The plan of the first request of an app, or of the first one under new overrides or another key.

        All limits of the app that share the store must agree.
        """
        if app is not None:
            register_limits(app, enforcer)
        return self._plan_with(enforcer)

    def _plan_with(self, enforcer: Enforcer) -> Plan:
        """The plan of the limit behind this enforcer; a limit without a key takes over the enforcer's."""
        key, names = enforcer.key, self.names.current
        rules = [_behind(enforcer, key, replace(rule, name=name)) for rule, name in zip(self.rules, names)]
        require_agreement(rules)
        warn_of_workers(enforcer.store)
        register(enforcer.store, self, owned_quotas(rules))
        subscribe(enforcer.store, self)
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        while True:
            live = live_overrides(enforcer.store)
            plan = Plan([rule for rule in [overridden(rule, live.get(rule.name)) for rule in rules] if rule.quota])
            self._plans[enforcer] = key, plan
            if live is live_overrides(enforcer.store):
                return plan

    def limit_texts(self) -> dict[str, str]:
        """The limits that the program itself sets, as text by name, for the log of an override."""
        return {name: limit_text(rule.quota) for name, rule in zip(self.names.current, self.rules)}

    def overrides_changed(self) -> None:
        """Apply the current overrides from the next request on; called from any thread."""
        self._plans.clear()

    def register(self, enforcer: Enforcer) -> None:
        """Register its names behind this enforcer, except those after its route, unless it has its own store."""
        if self._own is None:
            register(enforcer.store, self, owned_quotas([rule for rule in self.rules if rule.name != UNNAMED]))


def _quota_text(rule: CompiledRule) -> str:
    """The quotas of a rule as a text that says the same, or else as they are."""
    text = "" if callable(rule.quota) else as_text(rule.quota)
    return f'"{text}"' if text and as_quotas(text) == rule.quota else repr(rule.quota)


def _behind(enforcer: Enforcer, inherited: KeyFunction, rule: CompiledRule) -> CompiledRule:
    """A rule of a limit behind an enforcer, with the enforcer's trusted proxies, and its key if the rule has none."""
    key = inherited if rule.key is INHERITED_KEY else rule.key
    instead = None if enforcer.default is None else replace(enforcer.default, quota=())  # it is charged already
    fallback = address_key([key, inherited])
    return replace(rule, key=key, fallback=fallback, instead=instead, failures=enforcer.failures)


def named_rules(app: Any) -> dict[RateLimit, list[CompiledRule]]:
    """The rules of each limit of an app, under the names that they have there; those on several routes have none."""
    names = names_by_limit(app)
    limits = [call for route in walk(app) for call in route.dependencies if isinstance(call, RateLimit)]
    named: dict[RateLimit, list[CompiledRule]] = {}
    for limit in limits:
        own, *others = names.get(limit, {}).values() or [limit.names.after(UNNAMED)]
        named[limit] = [*limit.rules] if others else [replace(rule, name=name) for rule, name in zip(limit.rules, own)]
    return named


def require_depends(app: Any) -> None:
    """Raise ``ConfigurationError`` for a limit that stands somewhere in an app where FastAPI never calls it."""
    for route in walk(app):
        for function in (route.endpoint, *route.dependencies):
            require_no_default(function)
        for dependency in route.dependencies:
            require_no_factory(dependency)
            require_called_keys(dependency)


def register_limits(app: Any, enforcer: Enforcer) -> None:
    """Register all limits of an app that have no store of their own, whether or not they have had a request.

    Raises ``ConfigurationError`` for limits that share a name but not their quotas.
    """
    calls = [call for route in walk(app) for call in route.dependencies if isinstance(call, RateLimit)]
    for limit in dict.fromkeys(calls):
        limit.register(enforcer)


def _started(scope: Scope) -> RequestLimits:
    """Request limits for a request that no middleware has limited."""
    limits = scope[SCOPE_KEY] = RequestLimits(app_stores.enforcer_for(scope), None, [])
    return limits


def _report(limits: RequestLimits, response: Response) -> None:
    """Put the headers of all decisions where FastAPI adds them to its answer; they replace those of fewer decisions."""
    headers = [*draft(limits.reported), *([delay(limits.waited)] if limits.waited else [])]
    names = {name for name, _ in headers}
    response.raw_headers[:] = [*(each for each in response.raw_headers if each[0] not in names), *headers]
