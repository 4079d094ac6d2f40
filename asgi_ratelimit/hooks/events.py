"""What hooks receive: an event for each decision, a failure for each function of the program that fails.

And, for those of an ``AdaptiveTransport``, a change of what it knows about a server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Event:
    """A ``decision`` of the middleware, dependency, limiter, ``@pace`` or transport with this ``name``.

    ``latency`` is the number of seconds that the store took to answer; ``None`` for a call that waits for its slot, and
    for all but the first of several decisions in one answer. ``waited`` is the number of seconds that such a call, or a
    request, has waited, including the answer of the store; otherwise ``None``. ``request`` is the request to the app;
    ``None`` for any other call. An event equals one with the same name and decision.
    """

    name: str
    decision: Decision
    latency: float | None = field(default=None, compare=False)
    waited: float | None = field(default=None, compare=False)
    request: ObservedRequest | None = field(default=None, compare=False, repr=False)

    @property
    def result(self) -> Result:
        """The outcome of the decision, in one word."""
        return "allowed" if self.decision.allowed else "shadowed" if self.decision.shadow else "refused"

    @property
    def charge(self) -> Charge:
        """The charge on the binding quota: the refusing one with the longest wait, or else that with the least left."""
        charges = self.decision.charges
        if len(charges) == 1:
            return charges[0]
        states = self.decision.states
        return charges[states.index(min(states, key=tightness))]

    @property
    def rule(self) -> str:
        """The name of the rule whose limit decided; for a limiter, ``@pace`` or a transport, its own name."""
        return self.charge.name or self.name

    @property
    def quota(self) -> Quota:
        """The binding quota."""
        return self.charge.quota

    @property
    def key(self) -> str:
        """The key of the bucket, as the key function returned it: never use it as a label of a metric."""
        return self.charge.key

    @property
    def degraded(self) -> bool:
        """Whether it was decided without the store."""
        return self.decision.degraded

    @property
    def shadow(self) -> bool:
        """Whether it was decided and counted, but not enforced."""
        return self.decision.shadow

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


ChangeKind: TypeAlias = Literal["learned", "limit changed", "migrated", "paused", "pioneer failed"]


@dataclass(frozen=True, slots=True)
class LimitChange:
    """An ``AdaptiveTransport`` has learned something about a ``bucket`` of a ``host``; ``text`` is a sentence about it.

    ``kind`` is one of

    * ``"learned"``: an answer, or another process, has reported a limit for the first time;
    * ``"limit changed"``: the limit is another one now;
    * ``"migrated"``: requests of a route turn out to use other buckets than before;
    * ``"paused"``: the server has refused a request, and others wait;
    * ``"pioneer failed"``: the first request to an unknown bucket got no answer, or one that reports nothing.

    ``limit`` and ``remaining`` are units, or ``None`` if unknown, and ``paused_for`` is in seconds.
    """

    host: str
    bucket: str
    kind: ChangeKind
    text: str
    limit: float | None
    remaining: float | None
    paused_for: float


ChangeHook: TypeAlias = Callable[[LimitChange], None]
"""A function that is called with each change, in the event loop or thread of a request, so it must not block."""
