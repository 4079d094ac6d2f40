"""``Depends(RateLimit("5/minute"))``: limits written next to the routes of FastAPI, which is not imported here.

A limit without a name of its own is named after its route. The annotations of this module are evaluated, because
FastAPI reads them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from inspect import Parameter, Signature
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, TypeAlias
from uuid import UUID
from weakref import WeakSet

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from ..argument_errors import shows_use, used_as
from ..buckets import UNNAMED
from ..decision import Decision, OnError
from ..errors import ConfigurationError, QuotaError
from ..headers import delay, draft
from ..keys import Key, KeyFunction, client_ip
from ..keys.base import ScopeKey, is_dependency
from ..limiter import as_store, checked_name
from ..overrides import limit_text, watch_of
from ..quota_text import QuotaLike
from ..stores import Store
from ..stores.name_owners import register
from .checks import require_agreement, warn_of_workers
from .delays import receiving_of
from .enforcer import INHERITED_KEY, Enforcer, app_stores, enforcer_of
from .functions import CostFunction, QuotaFunction, address_key, signature_of
from .limits import SCOPE_KEY, RateLimited, RequestLimits, own_answer_of, request_limits
from .penalties import Penalty
from .plan import Plan
from .refusals import LimitUnavailable, OnLimited, checked_on_limited
from .routes import AppRoute, place_text, walk
from .rules import CompiledRule, default_rule, overridden, owned_quotas

_checked: WeakSet[Any] = WeakSet()
"""The apps whose limits all stand where FastAPI calls them."""

_KEYED = 'RateLimit("5/minute", key=Depends(current_user_id))'
_BY_PLAN = 'RateLimit(lambda request: QUOTAS.get(request.state.plan, "5/minute"), key=Depends(current_user_id))'
_NAMED = 'RateLimit("5/minute", name="login")'
_TOGETHER = 'RateLimit.together(RateLimit("5/minute"), RateLimit("100/minute", key=user()))'


class DependencyKey:
    """``key=Depends(current_user_id)``: the key that a dependency returns; FastAPI calls it once for each request."""

    VALUES = "asgi_ratelimit.keys"
    """The entry in the scope of a request that stores the values of dependencies."""

    def __init__(self, dependency: Any) -> None:
        if dependency.dependency is None:
            raise ConfigurationError(f"key={dependency!r} names no dependency: {_KEYED}")
        for mistake in _mistakes_of_key(dependency.dependency):
            raise mistake
        self.dependency = dependency

    def __repr__(self) -> str:
        function = self.dependency.dependency
        return f"Depends({getattr(function, '__name__', repr(function))})"

    def __call__(self, connection: HTTPConnection) -> Key:
        value = connection.scope[self.VALUES][self]
        if value is None or isinstance(value, (str, bytes, int, UUID)):
            return value
        kind = type(value).__qualname__  # not the value, which may be what an app knows of a user
        raise TypeError(f"{self!r} returned a {kind}, but a key is a str, bytes, an int, a UUID or None: {_KEYED}")


class RateLimit:
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

    @shows_use('RateLimit("5/minute", key=user()), and for two quotas RateLimit("5/minute; 100/hour")')
    def __init__(
        self,
        quota: "QuotaArgument",
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
            raise ConfigurationError(f"{quota!r} is not a quota: where a dependency sets the plan, {_BY_PLAN}")
        name = UNNAMED if name is None else checked_name(name)
        self._own = None if store is None else enforcer_of(as_store(store))
        key = INHERITED_KEY if key is None else DependencyKey(key) if is_dependency(key) else key
        defaults = default_rule(name, key, cost, on_error, max_delay, fallback=address_key([key]))
        rule = defaults.compiled(quota, penalty)
        self._set_rules([replace(rule, on_limited=checked_on_limited(on_limited))])
        if self._own is not None:
            self.register(self._own)

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
        are_limits = all(isinstance(limit, RateLimit) for limit in limits)
        if not are_limits or len({id(limit._own and limit._own.store) for limit in limits}) != 1:
            raise ConfigurationError(f"limits of RateLimit in one store are taken together, not {limits}: {_TOGETHER}")
        together = copy(limits[0])
        together._set_rules([rule for limit in limits for rule in limit.rules])
        require_agreement([rule for rule in together.rules if rule.name != UNNAMED])
        return together

    def _set_rules(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self.unnamed = sum([rule.name == UNNAMED for rule in rules])
        """How many of its rules are named after their route."""
        self._names = [rule.name for rule in rules]
        """The names of its rules, as of the route of the last request."""
        self._route: tuple[object, object] | None = None
        """The router and the route of the last request, if there are rules without a name."""
        self._plans: dict[Enforcer, tuple[KeyFunction, Plan]] = {}
        """The plan of the limit behind the enforcer of each app, and the enforcer's key at that time."""
        keys = dict.fromkeys([rule.key for rule in rules if isinstance(rule.key, DependencyKey)])
        self._keys = {f"key_{number}": key for number, key in enumerate(keys, 1)}
        """The keys that dependencies return, by the names under which FastAPI passes them."""
        kind = Parameter.KEYWORD_ONLY
        own = [Parameter(name, kind, default=key.dependency) for name, key in self._keys.items()]
        connection = Parameter("connection", kind, annotation=HTTPConnection)
        self.__signature__ = Signature([connection, Parameter("response", kind, annotation=Response), *own])

    def __repr__(self) -> str:
        names = ["" if rule.name == UNNAMED else f", name={rule.name!r}" for rule in self.rules]
        each = [f'RateLimit("{limit_text(rule.quota)}"{name})' for rule, name in zip(self.rules, names)]
        return each[0] if len(each) == 1 else f"RateLimit.together({', '.join(each)})"

    @used_as(
        'RateLimit is not a decorator: @app.get("/", dependencies=[Depends(RateLimit("5/minute"))]): RateLimit.__call__'
    )
    async def __call__(self, connection: HTTPConnection, response: Response, **values: Any) -> Decision | None:
        """Take from the limit; FastAPI calls this method. Raises ``RateLimited`` if the take is refused.

        ``values`` are the keys that dependencies have returned.
        """
        scope = connection.scope
        if values:
            by_key = {self._keys[name]: value for name, value in values.items()}
            scope.setdefault(DependencyKey.VALUES, {}).update(by_key)
        limits = request_limits(scope) or _started(scope)
        enforcer = self._own or limits.enforcer
        if limits.server_send is None and app_stores.replacement is not None:
            enforcer = app_stores.replacement
        if self.unnamed:
            self._follow(scope)
        key, plan = self._plans.get(enforcer, (None, None))
        if plan is None or key is not enforcer.key:
            plan = self._new_plan(enforcer)
        try:
            planned = ([], []) if limits.is_exempt else plan.evaluate(scope)
            takes, _ = planned if isinstance(planned, tuple) else await planned
        except LimitUnavailable as error:
            await limits.refund_all()
            raise RateLimited(limits, None).with_handler(scope) from error
        if not takes:
            return None
        receiving = receiving_of(connection) if plan.may_wait else None
        try:
            decision, *_ = await enforcer.take(plan, takes, scope, receiving, limits.enforcer)
        except BaseException:  # the request was cancelled: what earlier limits charged it comes back as well
            await limits.refund_all()
            raise
        if decision.shadow:
            return None
        limits.add([decision], enforcer.store)
        limits.waited += decision.delay
        if not decision.allowed:
            await limits.refund_all()
            own = {name: rule.on_limited for name, rule in zip(self._names, self.rules) if rule.on_limited}
            raise RateLimited(limits, decision, own_answer_of(decision, own)).with_handler(scope)
        if limits.server_send is None:
            _report(limits, response)
        return decision

    def _new_plan(self, enforcer: Enforcer) -> Plan:
        """The plan behind an enforcer, as of its first request, or of the first under new overrides or another key.

        A limit without a key takes over the enforcer's. Trusted proxies are the enforcer's, unless the key knows them.
        """
        inherited, rules = enforcer.key, list[CompiledRule]()
        instead = None if enforcer.default is None else replace(enforcer.default, quota=())  # it is charged already
        for rule, name in zip(self.rules, self._names):
            key = inherited if rule.key is INHERITED_KEY else rule.key
            behind = replace(rule, name=name, key=key, fallback=address_key([key, inherited]), instead=instead)
            rules.append(replace(behind, failures=enforcer.failures))
        require_agreement(rules)
        warn_of_workers(enforcer.store)
        register(enforcer.store, self, owned_quotas(rules))
        watch_of(enforcer.store).subscribe(self)
        while True:
            live = watch_of(enforcer.store).live
            plan = Plan([rule for rule in [overridden(rule, live.get(rule.name)) for rule in rules] if rule.quota])
            self._plans[enforcer] = inherited, plan
            if live is watch_of(enforcer.store).live:
                return plan

    def limit_texts(self) -> dict[str, str]:
        """The limits that the program itself sets, as text by name, for the log of an override."""
        return {name: limit_text(rule.quota) for name, rule in zip(self._names, self.rules)}

    def overrides_changed(self) -> None:
        """Apply the current overrides from the next request on; called from any thread."""
        self._plans.clear()

    def register(self, enforcer: Enforcer) -> None:
        """Register its names, except those after its route, in its own store or that of this enforcer."""
        named = [rule for rule in self.rules if rule.name != UNNAMED]
        register((self._own or enforcer).store, self, owned_quotas(named))

    # Names after routes

    def names_at(self, place: str, number: int = 1) -> list[str]:
        """A name for each rule: its own, or the place, with a number if other limits there are named after it too."""
        numbered = (place if each == 1 else f"{place} {each}" for each in count(number))
        return [next(numbered) if rule.name == UNNAMED else rule.name for rule in self.rules]

    def _follow(self, scope: Scope) -> None:
        """Name the limit after the route of this request; ``ConfigurationError`` if it is on several routes."""
        router, route = scope.get("router"), scope.get("route")
        if self._route is not None and self._route[0] is router and self._route[1] is route:
            return
        names = _names_by_limit(router).get(self)
        if names is None:
            raise ConfigurationError(f"a RateLimit that stands on no route needs a name: {_NAMED}")
        own = next(iter(names.values()))
        if len(names) > 1 or (self._route is not None and self._names != own):
            raise _needs_name(self, [*names, self._names[0]])
        self._route, self._names = (router, route), own

    # What raises ConfigurationError where a limit stands without Depends, as early as FastAPI lets it

    @property
    def dependency(self) -> NoReturn:
        """FastAPI looks for this attribute in a list of dependencies. Raises ``ConfigurationError``."""
        raise _lacks_depends(self, "in a list of dependencies")

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Any) -> NoReturn:
        """FastAPI has pydantic read annotations: those with a limit, or with its class, as if it lacks its call."""
        raise _lacks_depends('RateLimit("5/minute")', "in an annotation, or Depends(RateLimit) without its call,")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The limit itself, as a part of a router, say. FastAPI copies the default of a parameter alone."""
        if not memo:
            raise _lacks_depends(self, "as the default of a parameter")
        return self


if TYPE_CHECKING:
    QuotaArgument: TypeAlias = QuotaLike | QuotaFunction
else:
    QuotaArgument = Annotated[Any, RateLimit]  # so that Depends(RateLimit), which lacks its call, is an error


def _started(scope: Scope) -> RequestLimits:
    """Request limits for a request that no middleware has limited; the first request of an app is its start."""
    limits = RequestLimits(app_stores.enforcer_for(scope), None, [])
    app = scope.get("app")
    if app is not None and app not in _checked:
        start_limits(app, limits.enforcer)
        _checked.add(app)
    scope[SCOPE_KEY] = limits
    return limits


def _report(limits: RequestLimits, response: Response) -> None:
    """Put the headers of all decisions where FastAPI adds them to its answer; they replace those of fewer decisions."""
    headers = [*draft(limits.reported), *([delay(limits.waited)] if limits.waited else [])]
    names = {name for name, _ in headers}
    response.raw_headers[:] = [*(each for each in response.raw_headers if each[0] not in names), *headers]


# All limits of an app


def start_limits(app: Any, enforcer: Enforcer) -> None:
    """Check the limits of an app that starts behind an enforcer, and register their names.

    Raises ``ConfigurationError`` for ``mistakes``, and for limits that share a name but not their quotas.
    """
    for mistake in mistakes(app):
        raise mistake
    for limit in limits_of(app):
        limit.register(enforcer)


def limits_of(app: Any) -> list[RateLimit]:
    """The limits on the routes of an app, in order, each once."""
    return list(dict.fromkeys([limit for _, limit in _with_places(app)]))


def has_limited_route(app: Any) -> bool:
    """Whether a route of an app has a limit by a dependency, or a middleware of its own that may have."""
    middlewares = (each.app for route in walk(app) for each in route.middlewares)
    return bool(limits_of(app)) or any(hasattr(type(each), "limits_nothing") for each in middlewares)


def named_rules(app: Any) -> dict[RateLimit, list[CompiledRule]]:
    """The rules of each limit of an app, under the names that they have there; those on several routes have none."""
    by_limit, named = _names_by_limit(app), {}
    for limit in limits_of(app):
        names, *others = by_limit.get(limit, {}).values() or [limit.names_at(UNNAMED)]
        renamed = [replace(rule, name=name) for rule, name in zip(limit.rules, names)]
        named[limit] = [*limit.rules] if others else renamed
    return named


def mistakes(app: Any) -> Iterator[ConfigurationError]:
    """The limits, and keys, of an app that stand where FastAPI never calls them, and the limits that need a name."""
    for route in walk(app):
        for function in (route.endpoint, *route.dependencies):
            if not isinstance(function, RateLimit):
                yield from _mistakes_of_key(function)
                yield from _mistakes_of_signature(function)
    for limit, names in _names_by_limit(app).items():
        if len(names) > 1:
            yield _needs_name(limit, list(names))


def _mistakes_of_key(dependency: Any) -> Iterator[ConfigurationError]:
    """``Depends(client_ip)``: FastAPI would make the key of each request, as its client says."""
    if isinstance(dependency, type) and issubclass(dependency, ScopeKey):
        name, arguments = dependency.__name__, "" if dependency is client_ip else "..."
        problem = f"Depends({name}) lacks the call of {name}, so that each client would choose its arguments"
        yield ConfigurationError(f"{problem}: Depends({name}({arguments}))")


def _mistakes_of_signature(function: Any) -> Iterator[ConfigurationError]:
    """A limit that is the default of a parameter, or that a dependency returns."""
    as_called = signature_of(function)
    for parameter in as_called.parameters.values():
        if isinstance(parameter.default, RateLimit):
            yield _lacks_depends(parameter.default, f"as the default of the parameter {parameter.name!r}")
    if as_called.return_annotation is RateLimit:
        name = getattr(function, "__name__", repr(function))
        yield ConfigurationError(f"{name} returns a RateLimit, which FastAPI does not call: Depends({name}())")


def _lacks_depends(limit: object, where: str) -> ConfigurationError:
    """The error for a limit, or the text of one, that stands somewhere without ``Depends``."""
    right = f"dependencies=[Depends({limit})], or limit: Annotated[Any, Depends({limit})]"
    return ConfigurationError(f"a RateLimit {where} lacks Depends, and limits nobody: {right}")


def _with_places(app: Any) -> Iterator[tuple[AppRoute, RateLimit]]:
    for route in walk(app):
        for call in route.dependencies:
            if isinstance(call, RateLimit):
                yield route, call


def _names_by_limit(app: Any) -> dict[RateLimit, dict[str, list[str]]]:
    """The names of each limit that is named after its routes in an app, which no two limits share, by the routes.

    Routes of one path under several hosts are one place for a limit: that under the first of these hosts.
    """
    names: dict[RateLimit, dict[str, list[str]]] = {}
    numbers: Counter[str] = Counter()
    for route, limit in _with_places(app):
        path, place = place_text(route.path, route.methods), route.place
        if limit.unnamed and path not in names.setdefault(limit, {}):
            names[limit][path] = limit.names_at(place, numbers[place] + 1)
            numbers[place] += limit.unnamed
    return names


def _needs_name(limit: RateLimit, places: Sequence[str]) -> ConfigurationError:
    several = " and ".join(map(repr, places[:2]))
    return ConfigurationError(f"{limit!r} is used on several routes, such as {several}, and needs a name: {_NAMED}")
