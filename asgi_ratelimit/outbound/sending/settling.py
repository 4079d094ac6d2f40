"""The actual cost of requests: ``settle(answer)`` returns it, and the charge of the request is corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from ...decision import Decision
from ...errors import ConfigurationError
from ...hooks import Failure
from ...limiter import Cost, Limiter
from ...limiter.charges import actual_units, charged_units
from ...logs import FailureLog
from ...stores import settle
from ...waiting import Flow, GiveBack
from .request_values import CostOfRequest, PacedRequest, require_no_coroutine


@dataclass(slots=True)
class Answer:
    """What ``settle`` receives: the names of ``headers`` are in lower case, and ``body`` is as it was transferred."""

    status_code: int
    headers: Mapping[str, str]
    body: bytes = b""


Settle: TypeAlias = Callable[[Any], Cost | None]
"""Maps an ``Answer`` to the actual cost, one number for all quotas or one for each quota by name; ``None`` leaves the
charge. With the attribute ``reads_body = True`` it is called when the body is closed, otherwise when the headers
come."""


class Settler:
    """Settles requests, and never makes one fail: an error is logged, at most once a minute, and the charge stands.

    ``cost`` may have a method ``learn(request, charged, actual)``, or be a mapping of quotas whose costs have one. It
    is called after each settlement.
    """

    def __init__(self, function: Settle, cost: CostOfRequest, limiter: Limiter) -> None:
        if not callable(function):
            raise ConfigurationError(f"settle is a function of an answer, not {function!r}: settle=openai_usage")
        require_no_coroutine("settle", function)
        self.reads_body = getattr(function, "reads_body", False) is True
        self._function = function
        self._cost = cost
        self._limiter = limiter
        self._log = FailureLog()

    def settle(self, paced: PacedRequest, decision: Decision, response: Any, body: bytes) -> Flow[None]:
        """Settle the decision of a request at the cost of its answer."""
        store, charged = self._limiter.store, charged_units(decision)
        try:
            actual = self._function(Answer(response.status_code, response.headers, body))
            if actual is None:
                return
            units = actual_units(decision, actual, charged)
            if units != charged:
                yield GiveBack(store, partial(settle, store, decision, units))
            self._learn(getattr(paced.request, "original", paced.request), paced.cost, actual)
        except Exception as error:  # noqa: BLE001  # the functions are the user's; an answer that has come is never lost
            name = self._limiter.name
            self._log.report(f"settle= of {name!r} failed, so the charge stands", error)
            self._limiter.hooks.failed(Failure(name, "settle", error))

    def _learn(self, request: Any, charged: Cost, actual: Cost) -> None:
        learn = getattr(self._cost, "learn", None)
        if callable(learn):
            learn(request, charged, actual)
        for name, part in self._cost.items() if isinstance(self._cost, Mapping) else ():
            learn = getattr(part, "learn", None)
            units = actual.get(name) if isinstance(actual, Mapping) else actual
            if callable(learn) and isinstance(charged, Mapping) and name in charged and units is not None:
                learn(request, charged[name], units)
