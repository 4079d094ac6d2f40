"""What hooks receive: an event for each decision, and a failure for each function of the program that fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from starlette.types import Scope

from ..argument_errors import shows_use
from ..decision import Charge, Decision, tightness
from ..errors import ConfigurationError
from ..quotas import Quota

Result: TypeAlias = Literal["allowed", "refused", "shadowed"]
"""The outcome of a decision: ``"shadowed"`` is a refusal by a shadow rule, which the request passes anyway."""


RouteOf: TypeAlias = Callable[[Scope], str | None]
"""Returns the template of a request's route."""


class ObservedRequest:
    """The request that a decision is about: its ASGI ``scope``, as it is now, because the app adds to it."""

    __slots__ = ("_route_of", "scope")

    def __init__(self, scope: Scope, route_of: RouteOf) -> None:
        self.scope = scope
        self._route_of = route_of

    @property
    def route(self) -> str | None:
        """The template of its route; see ``Event.route``."""
        return self._route_of(self.scope)


class Event:
    """A ``decision`` of the middleware, dependency, limiter, ``@pace`` or transport with this ``name``.

    ``latency`` is the number of seconds that the store took to answer; ``None`` for a call that waits for its slot, and
    for all but the first of several decisions in one answer. ``waited`` is the number of seconds that such a call, or a
    request, has waited, including the answer of the store; otherwise ``None``. ``request`` is the request to the app;
    ``None`` for any other call. An event is never changed, and equals an event with the same name and decision.
    """

    __slots__ = ("_decision", "_latency", "_name", "_request", "_waited")

    def __init__(
        self,
        name: str,
        decision: Decision,
        latency: float | None = None,
        waited: float | None = None,
        request: ObservedRequest | None = None,
    ) -> None:
        self._name = name
        self._decision = decision
        self._latency = latency
        self._waited = waited
        self._request = request

    def __repr__(self) -> str:
        return f"Event({self.name!r}, {self.decision!r}, {self.latency!r}, {self.waited!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self.name == other.name and self.decision == other.decision

    __hash__ = None  # type: ignore[assignment]  # decisions have none either

    @property
    def name(self) -> str:
        """The name of the middleware, limiter, ``@pace`` or transport."""
        return self._name

    @property
    def decision(self) -> Decision:
        """The whole decision."""
        return self._decision

    @property
    def latency(self) -> float | None:
        """Seconds until the store had answered."""
        return self._latency

    @property
    def waited(self) -> float | None:
        """Seconds that the caller has waited."""
        return self._waited

    @property
    def request(self) -> ObservedRequest | None:
        """The request that the decision is about."""
        return self._request

    @property
    def result(self) -> Result:
        """The outcome of the decision, in one word."""
        return "allowed" if self._decision.allowed else "shadowed" if self._decision.shadow else "refused"

    @property
    def rule(self) -> str:
        """The name of the rule whose limit decided; for a limiter, ``@pace`` or a transport, its own name."""
        return self.charge.name or self._name

    @property
    def quota(self) -> Quota:
        """The binding quota: the refusing one with the longest wait, or else the one with the least left."""
        return self.charge.quota

    @property
    def key(self) -> str:
        """The key of the bucket, as the key function returned it: never use it as a label of a metric."""
        return self.charge.key

    @property
    def charge(self) -> Charge:
        """The charge on the binding quota."""
        charges = self._decision.charges
        return charges[0] if len(charges) == 1 else _binding(self._decision)

    @property
    def degraded(self) -> bool:
        """Whether it was decided without the store."""
        return self._decision.degraded

    @property
    def shadow(self) -> bool:
        """Whether it was decided and counted, but not enforced."""
        return self._decision.shadow

    @property
    def method(self) -> str | None:
        """The method of the request; ``None`` for a WebSocket, and if there is no request."""
        return None if self.request is None else self.request.scope.get("method")

    @property
    def path(self) -> str | None:
        """The path of the request, which clients choose: never use it as a label of a metric."""
        return None if self.request is None else self.request.scope["path"]

    @property
    def route(self) -> str | None:
        """The template of the route that the request is for, such as ``"/users/{id}"``.

        It is worked out when it is read. ``None`` if the app has no such route, or its routes are not Starlette's.
        """
        return None if self.request is None else self.request.route


def _binding(decision: Decision) -> Charge:
    """The charge on the binding quota of a decision over several charges."""
    states = decision.states
    return decision.charges[states.index(min(states, key=tightness))]


Hook: TypeAlias = Callable[[Event], Awaitable[object] | None]
"""A function that is called after each decision.

It is called in the event loop, so it must not block. What an ``async`` function returns is awaited in the background.
"""


@dataclass(frozen=True, slots=True)
class Failure:
    """A function of the program that ``failed``, by raising or by what it returned.

    ``failed`` is the argument that the function was passed as: ``"key"``, ``"quota"``, ``"cost"``, ``"settle"``,
    ``"allow"``, ``"deny"`` or ``"on_limited"``. ``name`` is the name of the rule or dependency, or else of the
    middleware.
    """

    name: str
    failed: str
    error: Exception


FailureHook: TypeAlias = Callable[[Failure], Awaitable[object] | None]
"""A function that is called after each failure, as a ``Hook`` is."""


class failures:  # noqa: N801  # a function to its users
    """A hook that is called with each ``Failure``, and with no decision: ``hooks=[failures(count)]``.

    Any other hook with a method ``failed`` gets failures as well, as the argument of that method.
    """

    @shows_use("failures(print)")
    def __init__(self, function: FailureHook) -> None:
        if not callable(function):
            raise ConfigurationError(f"a hook is a function of a Failure, not {function!r}: hooks=[failures(print)]")
        self.failed = function

    def __repr__(self) -> str:
        return f"failures({self.failed!r})"

    def __call__(self, event: Event) -> None:
        """Ignore decisions."""
