"""``Depends(RateLimit("5/minute"))``: limits written next to the routes of FastAPI, which is not imported here.

Annotations stand as they are, not as text: FastAPI reads them to see what to pass.
"""

import sys
from collections import Counter
from copy import copy
from dataclasses import replace
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Scope

from ..buckets import DEFAULT_NAME
from ..decision import Decision, OnError
from ..errors import ConfigurationError, QuotaError
from ..headers import draft
from ..hooks import Hooks
from ..keys.request_keys import KeyFunction, client_ip
from ..limiter import as_store, checked_name
from ..quota_text import QuotaLike
from ..stores import MemoryStore, Store
from ..stores.owners import claim
from .answers.refused import RateLimited
from .answers.responses import Refusal
from .gate import Gate
from .lines import Denied, Line
from .penalties.penalty import Penalty, checked_penalty
from .request_limits import SCOPE_KEY, Exchange, exchange_of
from .rule_table import Defaults, require_agreement
from .rules import CostFunction, QuotaFunction
from .startup.checks import warn_of_costs
from .terms import Terms

_INHERITED = client_ip()
"""The key of a limit that names none: that of the middleware, or else this one."""

_TOGETHER = 'RateLimit.together(RateLimit("5/minute"), RateLimit("100/minute", key=user()))'


class RateLimit:
    """A limit as a FastAPI dependency: on a route, a router or an app, for HTTP and for WebSocket.

    ``quota``, ``key``, ``cost`` and ``penalty`` are as in ``Rule``, functions included. One instance is one limit,
    which all its routes share: on a router it is for the whole router. ``key`` and ``store`` are those of the
    ``RateLimitMiddleware`` around the app, if there is one, and otherwise the client's address and this process's
    memory. Without a ``name`` the limit is known by the module and line that it is written in.

    A request over the limit never reaches the endpoint; it is answered as by the middleware. What its other limits
    had taken by then is given back. The dependency's value is the ``Decision``, or ``None`` if it did not apply.
    Raises ``QuotaError``, ``ConfigurationError`` or ``ValueError`` for arguments that cannot be.
    """

    def __init__(
        self,
        quota: "QuotaLike | QuotaFunction",
        *,
        key: "KeyFunction | None" = None,
        cost: "float | CostFunction" = 1,
        name: str | None = None,
        store: "Store | str | None" = None,
        on_error: "OnError | None" = None,
        penalty: "Penalty | None" = None,
    ) -> None:
        name = _place(sys._getframe(1)) if name is None else checked_name(name)
        if quota is None:
            raise QuotaError('a RateLimit needs a quota, not None: RateLimit("5/minute")')
        line = Defaults(name, key or _INHERITED, cost, on_error).line(quota)
        line.penalty = checked_penalty(penalty, quota)
        self.lines: tuple[Line, ...] = (line,)
        self._own = None if store is None else _gate_of(as_store(store))
        self._gate: Gate | None = None
        self._terms = Terms(self.lines)
        warn_of_costs(self.lines)
        if self._own is not None:
            self._terms_at(self._own)

    @classmethod
    def together(cls, *limits: "RateLimit") -> "RateLimit":
        """Several limits as one: a request takes from all of them or from none, in one call to the store.

        Raises ``ConfigurationError`` for no limits, and for limits in different stores or at odds with each other.
        """
        stores = {limit._own.store if limit._own else None for limit in limits}
        if len(stores) != 1:
            raise ConfigurationError(f"limits that are taken together need one store, not {len(stores)}: {_TOGETHER}")
        both = copy(limits[0])
        both.lines = tuple([line for limit in limits for line in limit.lines])
        require_agreement(both.lines)
        both._gate, both._terms = None, Terms(both.lines)
        return both

    def __repr__(self) -> str:
        each = [f"RateLimit({line.quota!r}, name={line.name!r})" for line in self.lines]
        return each[0] if len(each) == 1 else f"RateLimit.together({', '.join(each)})"

    async def __call__(self, connection: HTTPConnection, response: Response) -> Decision | None:
        """Take from the limit; FastAPI calls it. Raises ``RateLimited`` where that is refused."""
        scope = connection.scope
        exchange = exchange_of(scope) or _begun(scope)
        gate = self._own or exchange.gate
        terms = self._terms if gate is self._gate else self._terms_at(gate)
        try:
            bill = None if exchange.is_free else terms.bill(scope) if terms.is_plain else await terms.ask(scope)
        except Denied as error:
            raise RateLimited(exchange, None).let_answer(scope) from error
        decisions = None if bill is None else await gate.decide(bill)
        if not decisions:
            return None
        exchange.add(decisions, gate.store)
        if not decisions[0].allowed:
            await exchange.give_back()
            raise RateLimited(exchange, decisions[0]).let_answer(scope)
        if not exchange.is_sending:
            _tell(exchange, response)
        return decisions[0]

    def _terms_at(self, gate: Gate) -> Terms:
        """What the limit comes to behind this gate, whose key it takes over if it has none."""
        lines = [replace(line, key=gate.key) if line.key is _INHERITED else line for line in self.lines]
        claim(gate.store, self, lines)
        self._gate, self._terms = gate, Terms(lines)
        return self._terms


def _gate_of(store: Store) -> Gate:
    return Gate(DEFAULT_NAME, store, _INHERITED, draft, Refusal(), Hooks(()))


_in_memory = _gate_of(MemoryStore())
"""Where the limits are of which neither they nor a middleware say: the same for all, so that they may share names."""


def _begun(scope: Scope) -> Exchange:
    """An exchange for a request that no middleware has limited."""
    exchange = scope[SCOPE_KEY] = Exchange(_in_memory, [], None)
    return exchange


def _tell(exchange: Exchange, response: Response) -> None:
    """Put the headers of all decisions where FastAPI adds them to its own answer, in place of those of fewer."""
    others = [header for header in response.raw_headers if not header[0].startswith(b"ratelimit")]
    response.raw_headers[:] = [*others, *draft(exchange.told)]


_written: Counter[str] = Counter()
"""How many limits were written in each line of each module."""


def _place(frame: Any) -> str:
    """A name for a limit that has none: the same in all processes that run the same code."""
    place = f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
    _written[place] += 1
    return place if _written[place] == 1 else f"{place} {_written[place]}"


def limited_responses() -> dict[int | str, dict[str, Any]]:
    """What OpenAPI should know of a limited route: ``responses=limited_responses()`` of a route, router or app."""
    integer, text = {"schema": {"type": "integer"}}, {"schema": {"type": "string"}}
    return {
        429: {
            "description": "Too many requests: a quota has been exceeded",
            "headers": {
                "Retry-After": {"description": "Seconds to wait", **integer},
                "RateLimit-Policy": {"description": "The quotas, by name", **text},
                "RateLimit": {"description": "What is left of them", **text},
            },
            "content": {"application/problem+json": {"schema": _PROBLEM}},
        }
    }


_PROBLEM = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}
