"""``Depends(RateLimit("5/minute"))``: limits written next to the routes of FastAPI, which is not imported here.

A limit without a name of its own is named after its route. The annotations of this module are evaluated, because
FastAPI reads them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from inspect import Parameter, Signature
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, TypeAlias
from weakref import WeakKeyDictionary

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import PARAM_REGEX
from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..decision import Decision, OnError
from ..errors import ConfigurationError, QuotaError, shows_use
from ..headers.header_rendering import HeaderOptions, delay, draft
from ..hooks import Hooks
from ..keys import Key, KeyFunction, client_ip, path_param
from ..keys.base import ScopeKey, is_dependency
from ..keys.client_ip import address_key
from ..logs import warn_of_many
from ..overrides import limit_text, watch_of
from ..quota_text import QuotaLike
from ..quotas import has_places
from ..stores import MemoryStore, Store, as_store
from ..stores.base import register
from .delays import receiving_of
from .enforcer import Enforcer, RequestLimits
from .limits import RateLimited
from .penalties import Penalty
from .plan import SCOPE_KEY, Plan
from .refusals import LimitUnavailable, OnLimited, refused_by
from .routes import AppRoute, find_evaded, place_text, walk, warn_of, warn_of_workers
from .rules import CompiledRule, owned_quotas, require_agreement, under_overrides
from .user_functions import CostFunction, QuotaFunction, signature_of

_MADE_IN_EACH_REQUEST = (
    "limits of RateLimit have been made: FastAPI calls none that a function makes and returns in each request, so it "
    'limits nobody. Make it once: limit = RateLimit("5/minute"), and dependencies=[Depends(limit)]'
)

# Stands for the name of a ``RateLimit`` that has yet to be named after its route
UNNAMED = "(unnamed)"

_NONE_YET: object = object()  # stands for the router before the first request

_NAMED = 'RateLimit("5/minute", name="login")'
_TOGETHER = 'RateLimit.together(RateLimit("5/minute"), RateLimit("100/minute", key=user()))'


class DependencyKey:
    """``key=Depends(current_user_id)``: the key that a dependency returns; FastAPI calls it once for each request."""

    VALUES = "asgi_ratelimit.keys"  # the entry in the scope of a request that stores the values of dependencies

    def __init__(self, dependency: Any) -> None:
        if dependency.dependency is None:
            raise ConfigurationError(f'key={dependency!r} names no dependency: RateLimit("5/s", key=Depends(user))')
        self.dependency = dependency

    def __repr__(self) -> str:
        return repr(self.dependency)

    def __call__(self, connection: HTTPConnection) -> Key:
        key: Key = connection.scope[self.VALUES][self]
        return key


class RateLimit:
    """A limit as a FastAPI dependency: on a route, a router or an app, for HTTP and for WebSocket.

    ``quota``, ``key``, ``cost``, ``penalty`` and ``retry_after`` are as in ``Rule``, including functions. A ``key`` may
    also be the value of a dependency, ``key=Depends(current_user_id)``, which a middleware cannot use because it runs
    earlier. By default, ``key`` and ``store`` are those of the ``RateLimitMiddleware`` around the app, if there is one.
    Otherwise they are the client's address, and the store that ``set_store`` or ``app.state.rate_limit_store`` names,
    or else memory. One instance is one limit. A request is charged each time that FastAPI calls the limit: once, except
    with other scopes or ``use_cache=False``. Without a ``name``, a limit is named after its route. A limit that several
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
        retry_after: float | None = None,
    ) -> None:
        if quota is None:
            raise QuotaError('a RateLimit needs a quota, not None: RateLimit("5/minute")')
        self._own = None if store is None else enforcer_of(as_store(store))
        key = INHERITED_KEY if key is None else DependencyKey(key) if is_dependency(key) else key
        defaults = CompiledRule(UNNAMED if name is None else name, (), key, cost, on_error=on_error)
        more = {"on_limited": on_limited, "max_delay": max_delay, "retry_after": retry_after}
        self._set_rules([defaults.limiting(quota, penalty, **more)])
        if self._own is not None:
            self.register(self._own)
        warn_of_many("a-dependency-that-is-made-in-each-request", _MADE_IN_EACH_REQUEST)

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
        # How many of its rules are named after their route
        self.unnamed = sum([rule.name == UNNAMED for rule in rules])
        self._names = [rule.name for rule in rules]  # the names of its rules, as of the route of the last request
        # The router of the last request, after a route of which rules without a name are named
        self._router: object = _NONE_YET
        # The plan of the limit behind the enforcer of each app, and for what it was made: the key and the quota that it
        # takes over, and whether no middleware is around it
        self._plans: WeakKeyDictionary[Enforcer, tuple[object, Plan]] = WeakKeyDictionary()
        keys = dict.fromkeys([rule.key for rule in rules if isinstance(rule.key, DependencyKey)])
        # The keys that dependencies return, by the names under which FastAPI passes them
        self._keys = {f"key_{number}": key for number, key in enumerate(keys, 1)}
        kind = Parameter.KEYWORD_ONLY
        own = [Parameter(name, kind, default=key.dependency) for name, key in self._keys.items()]
        connection = Parameter("connection", kind, annotation=HTTPConnection)
        self.__signature__ = Signature([connection, Parameter("response", kind, annotation=Response), *own])

    def __repr__(self) -> str:
        names = ["" if rule.name == UNNAMED else f", name={rule.name!r}" for rule in self.rules]
        each = [f'RateLimit("{limit_text(rule.quota)}"{name})' for rule, name in zip(self.rules, names)]
        return each[0] if len(each) == 1 else f"RateLimit.together({', '.join(each)})"

    async def __call__(self, connection: HTTPConnection, response: Response, **values: Any) -> Decision | None:
        """Take from the limit; FastAPI calls this method. Raises ``RateLimited`` if the take is refused.

        ``values`` are the keys that dependencies have returned. The limit is

        1. exempt, and takes nothing, if the middleware exempts the client from all limits;
        2. in its own store, if it has one, and else in that of the innermost middleware around it, with its key;
        3. alone, if there is no middleware: in the store of the app, and with headers that FastAPI adds to its answer.

        In each case, the request collects its decisions: if a later limit refuses, what earlier ones took comes back.
        """
        scope = connection.scope
        if values:
            by_key = {self._keys[name]: value for name, value in values.items()}
            scope.setdefault(DependencyKey.VALUES, {}).update(by_key)
        if SCOPE_KEY not in scope:  # no middleware has limited the request
            scope[SCOPE_KEY] = RequestLimits(app_stores.enforcer_for(scope), None)
        limits: RequestLimits = scope[SCOPE_KEY]
        enforcer = (limits.inner or limits.enforcer) if self._own is None else app_stores.replacement or self._own
        if self.unnamed and scope.get("router") is not self._router:
            self._follow(scope.get("router"))
        is_alone = limits.server_send is None  # so nothing says when the answer has ended
        made_for, plan = self._plans.get(enforcer, (None, None))
        if plan is None or made_for != (enforcer.key, enforcer.default, is_alone):
            plan = self._new_plan(enforcer, is_alone)
        try:
            planned = () if limits.is_exempt else plan.evaluate(scope)
            takes = planned if isinstance(planned, tuple) else await planned
        except LimitUnavailable as error:
            await limits.refund_all()
            raise RateLimited(limits, None).with_handler(scope) from error
        if not takes:
            return None
        if plan.holds and is_alone and has_places([each.quota for each in takes[0].charges]):
            raise ConfigurationError(f"{self!r} needs the end of the answer: app.add_middleware(RateLimitMiddleware)")
        receiving = receiving_of(connection) if plan.may_wait else None
        try:
            decisions = await enforcer.take(plan, takes, scope, receiving, limits.enforcer)
        except BaseException:  # the request was cancelled: what earlier limits charged it comes back as well
            await limits.refund_all()
            raise
        decision = limits.add(plan, decisions, enforcer.store, limits.enforcer.hooks)
        if decision is None:
            return None
        if not decision.allowed:
            await limits.refund_all()
            name, usual = refused_by(decision), limits.inner.on_limited if limits.inner else None
            own = next((rule.on_limited for rule in plan.rules if rule.name == name and rule.on_limited), usual)
            raise RateLimited(limits, decision, own).with_handler(scope)
        if is_alone:
            _report(limits, response)
        return decision

    def _new_plan(self, enforcer: Enforcer, is_alone: bool) -> Plan:
        """The plan behind an enforcer, as of its first request, or of the first under new overrides or another key.

        A limit without a key takes over the enforcer's. Trusted proxies are the enforcer's, unless the key knows them.
        """
        inherited, default, rules = enforcer.key, enforcer.default, list[CompiledRule]()
        # What the middleware's own quota takes is taken already
        instead = None if default is None else replace(default, quota=(), penalty=None, max_delay=0.0)
        for rule, name in zip(self.rules, self._names):
            key = inherited if rule.key is INHERITED_KEY else rule.key
            behind = replace(rule, name=name, key=key, fallback=address_key([key, inherited]), instead=instead)
            rules.append(replace(behind, failures=enforcer.failures))
        require_agreement(rules)
        warn_of_workers(enforcer.store)
        register(enforcer.store, self, owned_quotas(rules))
        watch_of(enforcer.store).subscribe(self)
        plans = self._plans  # before the overrides are read: another thread may change them, and replaces it
        live = watch_of(enforcer.store).live
        plan = Plan([rule for rule in under_overrides(rules, live, may_hold=not is_alone) if rule.quota])
        plans[enforcer] = (inherited, default, is_alone), plan
        return plan

    def limit_texts(self) -> dict[str, str]:
        """The limits that the program itself sets, as text by name, for the log of an override."""
        return {name: limit_text(rule.quota) for name, rule in zip(self._names, self.rules)}

    def overrides_changed(self) -> None:
        """Apply the current overrides from the next request on; called from any thread."""
        self._plans = WeakKeyDictionary()

    def register(self, enforcer: Enforcer) -> None:
        """Register its names, except those after its route, in its own store or that of this enforcer."""
        named = owned_quotas([rule for rule in self.rules if rule.name != UNNAMED])
        register((self._own or enforcer).store, self, named)

    # Names after routes

    def names_at(self, place: str, number: int = 1) -> list[str]:
        """A name for each rule: its own, or the place, with a number if other limits there are named after it too."""
        numbered = (place if each == 1 else f"{place} {each}" for each in count(number))
        return [next(numbered) if rule.name == UNNAMED else rule.name for rule in self.rules]

    def _follow(self, router: Any) -> None:
        """Name the limit after its route in a router; ``ConfigurationError`` if it is on several routes, or on none."""
        names = names_in(walk(router)).get(self, {})
        own = [*names.values()][:1]
        if len(names) != 1 or (self._router is not _NONE_YET and own != [self._names]):
            raise _needs_name(self, [*names, *(self._names if names else ())])
        self._names, self._router = own[0], router

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


def _report(limits: RequestLimits, response: Response) -> None:
    """Put the headers of all decisions where FastAPI adds them to its answer; they replace those of fewer decisions."""
    headers = [*draft(limits.reported), *([delay(limits.waited)] if limits.waited else [])]
    names = {name for name, _ in headers}
    response.raw_headers[:] = [*(each for each in response.raw_headers if each[0] not in names), *headers]


# Dependencies that have neither a store of their own nor a middleware around them


STATE = "rate_limit_store"  # the attribute of `app.state` that is the store, or its URL, of an app's dependencies

INHERITED_KEY = client_ip()  # the key of a limit that has neither its own key nor one from a middleware


def enforcer_of(store: Store) -> Enforcer:
    """The enforcer for the limits of dependencies in a store of their own."""
    return Enforcer(DEFAULT_NAME, store, INHERITED_KEY, HeaderOptions(), Hooks(()))


class AppStores:
    """Which store the dependencies of each app use: ``app.state.rate_limit_store``, the default, or its own memory."""

    def __init__(self) -> None:
        self._default: Store | str | None = None
        # The store as it is configured for each app, and the enforcer on it; this object stands for no app
        self._enforcers: WeakKeyDictionary[Any, tuple[object, Enforcer]] = WeakKeyDictionary()
        self.replacement: Enforcer | None = None  # the enforcer of all limits without a middleware, in tests

    def set_default(self, store: Store | str | None) -> None:
        """Set the store of all apps whose state names none; ``None`` for a memory store for each app."""
        self._default = None if store is None else as_store(store)
        self._enforcers.clear()

    def enforcer_for(self, scope: Scope) -> Enforcer:
        """The enforcer of the limits of a request's app, which starts with its first request.

        It starts anew with another store, if its state has changed, and in tests.
        """
        app = self if scope.get("app") is None else scope["app"]
        configured = getattr(getattr(app, "state", None), STATE, self._default)
        before, enforcer = self._enforcers.get(app, (None, None))
        if enforcer is None or before is not configured:
            enforcer = self.replacement or enforcer_of(as_store(configured))
            start_limits(app, enforcer)
            warn_of(find_evaded((), without_middleware(walk(app))))
            self._enforcers[app] = configured, enforcer
        return enforcer

    @contextmanager
    def replaced(self, store: MemoryStore) -> Iterator[None]:
        """Within this context, all limits without a middleware are in this store."""
        before = self.replacement, self._enforcers
        self.replacement, self._enforcers = enforcer_of(store), WeakKeyDictionary()
        try:
            yield
        finally:
            self.replacement, self._enforcers = before


app_stores = AppStores()


# All limits of an app


def start_limits(app: Any, enforcer: Enforcer) -> None:
    """Check the limits of an app that starts behind an enforcer, and register their names.

    Raises ``ConfigurationError`` for ``mistakes``, and for limits that share a name but not their quotas.
    """
    for mistake in mistakes(list(walk(app)), enforcer):
        raise mistake


def has_limited_route(app: Any) -> bool:
    """Whether a route of an app has a limit by a dependency, or a ``RateLimitMiddleware`` of its own."""
    return bool(names_in(walk(app))) or any(map(_has_middleware, walk(app)))


def without_middleware(routes: Iterable[AppRoute]) -> list[AppRoute]:
    """The routes that no ``RateLimitMiddleware`` is around."""
    return [route for route in routes if not _has_middleware(route)]


def _has_middleware(route: AppRoute) -> bool:
    kinds = [getattr(each.app, "cls", type(each.app)) for each in route.middlewares]  # not all of them are built
    return any(hasattr(kind, "limits_nothing") for kind in kinds)


def names_in(routes: Iterable[AppRoute]) -> dict[RateLimit, dict[str, list[str]]]:
    """The limits on routes of an app, in order, with the names that their rules have there, by the routes.

    No two limits are named after one route. Routes of one path under several hosts are one place for a limit: that
    under the first of these hosts.
    """
    names: dict[RateLimit, dict[str, list[str]]] = {}
    numbers: Counter[str] = Counter()
    for route in routes:
        path = place_text(route.path, route.methods)
        for limit in route.dependencies:
            if isinstance(limit, RateLimit) and path not in names.setdefault(limit, {}):
                names[limit][path] = limit.names_at(route.place, numbers[route.place] + 1)
                numbers[route.place] += limit.unnamed
    return names


def named_rules(routes: Iterable[AppRoute]) -> dict[RateLimit, list[CompiledRule]]:
    """The rules of each limit on routes of an app, under their names there; those on several routes have none."""
    named = {}
    for limit, places in names_in(routes).items():
        names = next(iter(places.values())) if len(places) == 1 else [rule.name for rule in limit.rules]
        named[limit] = [replace(rule, name=name) for rule, name in zip(limit.rules, names)]
    return named


def mistakes(routes: Sequence[AppRoute], enforcer: Enforcer | None = None) -> Iterator[ConfigurationError]:
    """The mistakes in limits and keys on routes: those that FastAPI never calls, and those that need another name.

    All names are registered, behind the enforcer, if there is one.
    """
    enforcer = enforcer or enforcer_of(MemoryStore())
    for route in routes:
        for function in (route.endpoint, *route.dependencies):
            name = getattr(function, "__name__", repr(function))
            if isinstance(function, type) and issubclass(function, ScopeKey):
                problem = f"Depends({name}) lacks the call of {name}, so that each client would choose its arguments"
                yield ConfigurationError(f"{problem}: Depends({name}(...))")
            elif signature_of(function).return_annotation is RateLimit:
                problem = f"{name} returns a RateLimit, which FastAPI does not call"
                yield ConfigurationError(f"{problem}: Depends({name}())")
    for limit, names in names_in(routes).items():
        if limit.unnamed and len(names) > 1:
            yield _needs_name(limit, list(names))
        keys: list[Any] = [rule.key for rule in limit.rules]
        for key in keys:
            keys += getattr(key, "parts", ())
            if isinstance(key, path_param) and key.name not in dict(PARAM_REGEX.findall(" ".join(names))):
                problem = f"{key!r} needs a parameter {{{key.name}}}, which no route of {limit!r} has"
                yield ConfigurationError(f'{problem}: "/items/{{{key.name}}}"')
        try:
            limit.register(enforcer)
        except ConfigurationError as error:
            yield error


def _lacks_depends(limit: object, where: str) -> ConfigurationError:
    """The error for a limit, or the text of one, that stands somewhere without ``Depends``."""
    right = f"dependencies=[Depends({limit})], or limit: Annotated[Any, Depends({limit})]"
    return ConfigurationError(f"a RateLimit {where} lacks Depends, and limits nobody: {right}")


def _needs_name(limit: RateLimit, places: Sequence[str]) -> ConfigurationError:
    where = f"several routes, such as {' and '.join(map(repr, places[:2]))}," if places else "no route,"
    return ConfigurationError(f"{limit!r} is used on {where} and needs a name: {_NAMED}")
