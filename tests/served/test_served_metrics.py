"""Metrics of several workers: the libraries' own readers see exactly what was decided, in all of them together."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.server import HOST, Uvicorn

WORKERS = 2
# How many connections a worker has, at the most.
MOST_OF_A_WORKER = 4

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.mark.parametrize("decisions", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_workers_add_up(decisions: int, redis_url: str, tmp_path: Path) -> None:
    """What clients were answered, what Prometheus scrapes, and what OpenTelemetry has collected are equal."""
    env = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "STORE": redis_url, "QUOTA": f"{decisions // 2}/day"}
    options = ("--workers", str(WORKERS), "--no-access-log")
    with Uvicorn("tests.support.measured_app:app", *options, env=env) as server:
        answers = asyncio.run(load(server.port, decisions))
        scraped = samples(httpx.get(f"{server.url}/metrics/", trust_env=False, timeout=30).text)
    results = Counter({"allowed": answers["200"], "refused": answers["429"]})
    assert results.total() == decisions
    assert min(results.values()) >= decisions * 0.4
    assert sums(scraped["asgi_ratelimit_requests_total"]) == results
    assert sum(scraped["asgi_ratelimit_take_duration_seconds_count"].values()) == decisions
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("opentelemetry-*.json")]
    collected = [sums({tuple(labels): value for *labels, value in report}) for report in reports]
    assert len(collected) == WORKERS
    assert all(each.total() > 0 for each in collected)
    assert sum(collected, Counter()) == results


async def load(port: int, count: int) -> Counter[str]:
    """How many answers of each status so many requests get, over connections to all workers."""
    workers: dict[bytes, list[Connection]] = {}
    while len(workers) < WORKERS:
        connection = await asyncio.open_connection(HOST, port)
        workers.setdefault(await worker_of(*connection), []).append(connection)
    connections = [connection for each in workers.values() for connection in each[:MOST_OF_A_WORKER]]
    for unused in [connection for each in workers.values() for connection in each[MOST_OF_A_WORKER:]]:
        unused[1].close()
    share, rest = divmod(count, len(connections))
    shares = [share + (number < rest) for number in range(len(connections))]
    counts = await asyncio.gather(*[statuses(*each, own) for each, own in zip(connections, shares, strict=True)])
    return sum(counts, Counter())


async def worker_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Which worker has accepted a connection."""
    writer.write(b"GET /worker HTTP/1.1\r\nhost: test\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = re.findall(rb"content-length: (\d+)", head)
    return await reader.readexactly(int(length))


async def statuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int) -> Counter[str]:
    """The statuses of the answers to so many requests, which are sent at once, and the last of which ends it."""
    request = b"GET / HTTP/1.1\r\nhost: test\r\n"
    writer.write((request + b"\r\n") * (count - 1) + request + b"connection: close\r\n\r\n")
    answers = (await reader.read()).decode()
    writer.close()
    return Counter(re.findall(r"HTTP/1.1 (\d+) ", answers))


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The values of each metric, by the values of its labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def sums(values: dict[tuple[str, ...], float]) -> Counter[str]:
    """The values of one rule and quota by their results."""
    by_result: Counter[str] = Counter()
    for labels, value in values.items():
        (result,) = {*labels} - {"everybody", "per-day"}
        by_result[result] += int(value)
    return by_result
