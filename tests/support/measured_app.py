"""An app whose decisions are counted by Prometheus and by OpenTelemetry, in as many workers as there are.

``/metrics`` is what Prometheus scrapes: the sums of all workers. Each worker writes what the reader of OpenTelemetry
has collected into a file of its own when it ends. The environment names the store, the quota and the folder of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from asgi_ratelimit import RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.metrics import opentelemetry, prometheus
from tests.support.telemetry import sums_of

FOLDER = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])
READER = InMemoryMetricReader()
ALL_WORKERS = CollectorRegistry()
MultiProcessCollector(ALL_WORKERS)  # type: ignore[no-untyped-call]


def everybody(connection: HTTPConnection) -> str:
    """One key for all."""
    return "everybody"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """At its end, the worker writes its sums."""
    yield
    sums = sums_of(READER, "asgi_ratelimit.requests")
    text = json.dumps([[*labels, value] for labels, value in sums.items()])
    (FOLDER / f"opentelemetry-{os.getpid()}.json").write_text(text)


metrics = Mount("/metrics", make_asgi_app(ALL_WORKERS))
worker = Route("/worker", PlainTextResponse(str(os.getpid())))  # without a limit
app = Starlette(routes=[Route("/", PlainTextResponse("hello")), worker, metrics], lifespan=lifespan)
app.add_middleware(
    RateLimitMiddleware,
    quota=os.environ["QUOTA"],
    key=everybody,
    name="everybody",
    rules=[Rule("/metrics/{path:path}", None), Rule("/worker", None)],
    store=RedisStore(os.environ["STORE"], timeout=30.0),  # a busy machine is no outage
    hooks=[prometheus(), opentelemetry(MeterProvider([READER]))],
)
