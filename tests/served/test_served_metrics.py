"""Metrics of several workers: the libraries' own readers see exactly what was decided, in all of them together."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.server import HOST, Uvicorn

WORKERS = 4
AT_ONCE = 50
"""How many requests a connection sends before it reads their answers."""


@pytest.mark.parametrize("decisions", [4_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_four_workers_add_up(decisions: int, redis_url: str, tmp_path: Path) -> None:
    """What clients were answered, what Prometheus scrapes, and what OpenTelemetry has collected are equal."""
    env = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "STORE": redis_url, "QUOTA": f"{decisions // 2}/day"}
    options = ("--workers", str(WORKERS), "--no-access-log")
    with Uvicorn("tests.support.measured_app:app", *options, env=env) as server:
        answers = asyncio.run(load(server.port, decisions))
        scraped = samples(httpx.get(f"{server.url}/metrics/", trust_env=False, timeout=30).text)
    results = Counter({"allowed": answers[200], "refused": answers[429]})
    assert results.total() == decisions
    assert min(results.values()) >= decisions * 0.4
    assert sums(scraped["asgi_ratelimit_requests_total"]) == results
    assert sum(scraped["asgi_ratelimit_take_duration_seconds_count"].values()) == decisions
    reports = [json.loads(path.read_text()) for path in tmp_path.glob("opentelemetry-*.json")]
    collected = [sums({tuple(labels): value for *labels, value in report}) for report in reports]
    assert len(collected) == WORKERS
    assert all(each.total() > 0 for each in collected)
    assert sum(collected, Counter()) == results


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, path: str, count: int = 1) -> list[tuple[int, bytes]]:
        """Status and body of the answers to so many requests, sent at once."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode() * count)
        return [await self._answer() for _ in range(count)]

    async def count(self, count: int) -> Counter[int]:
        """How many answers have each status."""
        statuses: Counter[int] = Counter()
        for sent in range(0, count, AT_ONCE):
            statuses.update(status for status, _ in await self.ask("/", min(AT_ONCE, count - sent)))
        return statuses

    async def close(self) -> None:
        """The server need not wait for it when it ends."""
        self._writer.close()
        await self._writer.wait_closed()

    async def _answer(self) -> tuple[int, bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].split()[0])
        return int(head.split()[1]), await self._reader.readexactly(length)


async def load(port: int, count: int) -> Counter[int]:
    """How many of so many requests, over all workers, were answered with each status."""
    clients: dict[bytes, Client] = {}
    opened = []
    while len(clients) < WORKERS:
        client = Client(*await asyncio.open_connection(HOST, port))
        ((_, worker),) = await client.ask("/worker")
        opened.append(client)
        clients.setdefault(worker, client)
    share, rest = divmod(count, WORKERS)
    shares = [share + (number < rest) for number in range(WORKERS)]
    counts = await asyncio.gather(*[client.count(own) for client, own in zip(clients.values(), shares, strict=True)])
    for client in opened:
        await client.close()
    return sum(counts, Counter())


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
