"""The instruments, named like those of ASP.NET's rate limits in the semantic conventions of OpenTelemetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Instrument:
    """An instrument with its ``labels``. The first ``names`` of them are texts of the program, which may be many.

    ``buckets`` are those of a histogram. ``across`` says how several processes make one number of a gauge.
    """

    name: str
    kind: Literal["counter", "up_down_counter", "gauge", "histogram"]
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    names: int = 0
    buckets: tuple[float, ...] = ()
    across: Literal["sum", "max"] = "sum"

    @property
    def prometheus_name(self) -> str:
        """Its name for Prometheus, as the exporters of OpenTelemetry write it."""
        seconds = "_seconds" if self.unit == "s" else ""
        return self.name.replace(".", "_") + seconds + ("_total" if self.kind == "counter" else "")


_FAST = (0.00001, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_SLOW = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

REQUESTS: Final = Instrument(
    "asgi_ratelimit.requests",
    "counter",
    "{request}",
    "Decisions on requests and calls, by the rule and the quota that decided, and the result.",
    ("rule", "quota", "result"),
    2,
)
DEGRADED_REQUESTS: Final = Instrument(
    "asgi_ratelimit.degraded_requests",
    "counter",
    "{request}",
    "Decisions that were made without the store, by the rule that decided.",
    ("rule",),
    1,
)
TAKE_DURATION: Final = Instrument(
    "asgi_ratelimit.take.duration",
    "histogram",
    "s",
    "How long the store took to decide, the wait for other takes included.",
    buckets=_FAST,
)
QUEUED_REQUESTS: Final = Instrument(
    "asgi_ratelimit.queued_requests",
    "up_down_counter",
    "{request}",
    "Requests and calls that wait for their slots now, by the middleware, limiter or transport.",
    ("name",),
    1,
)
TIME_IN_QUEUE: Final = Instrument(
    "asgi_ratelimit.request.time_in_queue",
    "histogram",
    "s",
    "How long requests and calls have waited for their slots, by the middleware, limiter or transport.",
    ("name",),
    1,
    _SLOW,
)
CALL_DURATION: Final = Instrument(
    "asgi_ratelimit.store.call.duration",
    "histogram",
    "s",
    "How long a call to the server of the store took, by the store's prefix and the outcome.",
    ("store", "outcome"),
    1,
    _FAST,
)
BATCH_SIZE: Final = Instrument(
    "asgi_ratelimit.store.batch.size",
    "histogram",
    "{take}",
    "How many takes, settlements and the like were in a call to the server of the store.",
    ("store",),
    1,
    _SIZES,
)
DEGRADED: Final = Instrument(
    "asgi_ratelimit.degraded",
    "gauge",
    "",
    "Whether the store, or a node of it, is out: 1, or else 0.",
    ("store",),
    1,
    across="max",
)
LEDGER: Final = Instrument(
    "asgi_ratelimit.outage_ledger.entries",
    "gauge",
    "{entry}",
    "Entries of the outage ledger: what the store is still to be charged with.",
    ("store",),
    1,
)
FUNCTION_FAILURES: Final = Instrument(
    "asgi_ratelimit.function.failures",
    "counter",
    "{failure}",
    "Functions of the program that failed, by the rule and the argument that they were given as.",
    ("rule", "function"),
    1,
)
