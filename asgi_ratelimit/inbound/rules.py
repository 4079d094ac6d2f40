"""Rules: which requests are charged to which quotas, under which key, as their users write them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from dataclasses import KW_ONLY, dataclass, fields
from typing import TypeAlias

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from ..decision import OnError, checked_cost, checked_on_error
from ..errors import ConfigurationError
from ..keys.request_keys import KeyFunction
from ..quota_text import QuotaLike
from .penalties.penalty import Penalty

QuotaFunction: TypeAlias = Callable[[HTTPConnection], "QuotaLike | Awaitable[QuotaLike | None] | None"]
"""The quota of a connection, ``None`` for no limit."""

CostFunction: TypeAlias = Callable[[HTTPConnection], "float | Awaitable[float]"]
"""The cost of a connection in units, 0 for nothing."""

SettleFunction: TypeAlias = (
    Callable[[int, Headers], "float | Awaitable[float | None] | None"]
    | Callable[[int, Headers, int], "float | Awaitable[float | None] | None"]
)
"""The actual cost in units by status and headers of the answer, and the bytes of its body; ``None``: as charged."""


@dataclass(frozen=True, slots=True, repr=False)
class Rule:
    """Requests whose path matches ``path``, in Starlette's own syntax, are charged to ``quota``.

    Every rule that matches applies, together with the middleware's own quota, all or nothing. With ``only`` the
    request is charged to this rule alone; with ``quota=None`` to nothing at all; where several such rules match, the
    first one decides. ``methods`` narrows a rule down to some HTTP methods (GET covers HEAD); a CORS preflight meets
    only rules that name OPTIONS. ``key``, ``cost`` and ``on_error`` are the middleware's own unless given.

    ``quota``, ``key`` and ``cost`` may be functions of the connection, sync or async: a quota of ``None``, a key of
    ``None`` or a cost of 0 means that the rule does not apply. A function that raises is logged once, and
    ``on_error`` decides: ``"deny"`` answers with 503, all else lets the request through without this rule.
    ``on_error`` also says what happens without the store; where the rules of a request differ, the strictest decides.

    The cost is charged before the app runs. ``settle(status, headers)``, sync or async, may then say what it really
    came to: less is given back before the answer goes out, more is owed. With a third parameter it gets the number of
    bytes that were sent, and is asked at the end of the answer, also where that breaks off. Where no answer begins,
    because the client has gone, the charge stands.

    ``messages`` is a quota for what comes in over a WebSocket after its handshake, under the same key: reading pauses,
    so that the peer is slowed down, and where a message would have to wait for more than 5 seconds, the socket is
    closed with 1013. ``Rule(path, None, messages="20/s")`` exempts the handshake alone.

    A ``penalty`` blocks, for this rule, a key that it refuses again and again.

    With ``shadow`` the rule is decided by itself and counted, and never enforced. Rules of one ``name`` share their
    buckets, and a request is charged to each bucket once; by default the buckets belong to the path and the methods.
    """

    path: str
    quota: QuotaLike | QuotaFunction | None
    _: KW_ONLY
    methods: Collection[str] | None = None
    key: KeyFunction | None = None
    cost: float | CostFunction | None = None
    name: str | None = None
    only: bool = False
    shadow: bool = False
    settle: SettleFunction | None = None
    messages: QuotaLike | None = None
    on_error: OnError | None = None
    penalty: Penalty | None = None

    def __repr__(self) -> str:
        said = [each for each in fields(self)[2:] if getattr(self, each.name) != each.default]
        more = [f"{each.name}={getattr(self, each.name)!r}" for each in said]
        return f"Rule({', '.join([repr(self.path), repr(self.quota), *more])})"


def asks_for_bytes(settle: SettleFunction) -> bool:
    """Whether a settle function wants the bytes of an answer; ``ConfigurationError`` for what is no such function."""
    taken = _parameters(settle) if callable(settle) else 0
    if 2 <= taken <= 3:
        return taken == 3
    raise ConfigurationError(
        f"settle is a function of the status and the headers, and of the bytes sent if it likes, not {settle!r}: "
        "settle=lambda status, headers: 0 if status < 400 else 1"
    )


def _parameters(function: Callable[..., object]) -> int:
    """How many arguments a function takes by position; those with a default do not count."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = inspect.signature(function).parameters.values()
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in known)


def as_methods(methods: Collection[str] | None) -> frozenset[str] | None:
    """The methods of a rule in capitals, HEAD along with GET; ``ConfigurationError`` for what is no list of them."""
    if methods is None:
        return None
    if isinstance(methods, str) or not methods:
        raise ConfigurationError(f'methods is a list of HTTP methods, not {methods!r}: methods=["GET", "POST"]')
    named = {method.upper() for method in methods}
    return frozenset(named | {"HEAD"} if "GET" in named else named)


def as_cost(cost: float | CostFunction) -> float | CostFunction:
    """A cost, or a function of it; ``ValueError`` for anything else."""
    return cost if callable(cost) else checked_cost(cost)


def as_on_error(on_error: OnError | None) -> OnError | None:
    """One of the three words, or ``None``, which leaves it to the store; ``ConfigurationError`` otherwise."""
    return None if on_error is None else checked_on_error(on_error)
