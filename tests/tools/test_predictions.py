"""What logs of each kind foretell, beside the same load under the limit, in the time of a stepped clock."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import gmtime, strftime

import pytest
from starlette.types import ASGIApp

from asgi_ratelimit import MemoryStore, RateLimitMiddleware, Rule
from asgi_ratelimit.hooks import Event
from asgi_ratelimit.testing import SteppedClock
from asgi_ratelimit.tools.cli import main
from tests.support.asgi import http, ok
from tests.support.scheduled_load import Arrival, benchmark_arrivals

START = 1_791_640_536.0

LOGS = (
    ("fractions", 0.0, True),
    ("nginx", 0.005, True),
    ("combined", 0.01, False),
)
"""Logs, how far what they foretell may be from a live run, and whether that holds by rule."""


async def answered(app: ASGIApp, clock: SteppedClock, arrivals: Iterable[Arrival]) -> list[int]:
    """The statuses of requests that come at these times after ``START``."""
    statuses: list[int] = []

    async def receive() -> None:
        raise AssertionError("the app reads no body")

    async def send(message: object) -> None:
        assert isinstance(message, dict)
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    for arrival in arrivals:
        clock.move_to(START + arrival.time)
        await app(http(arrival.path, client=(arrival.client, 1)), receive, send)  # type: ignore[arg-type]
    return statuses


def write_logs(folder: Path, arrivals: Sequence[Arrival]) -> None:
    """A log of an app that answers after 50 ms in the mean, and logs of servers in front of it."""
    fractions = [json.dumps({"time": START + each.time, "key": each.client, "path": each.path}) for each in arrivals]
    (folder / "fractions").write_text("\n".join(fractions))
    generator = random.Random(1)
    answers = sorted([(each.time + generator.expovariate(20), each) for each in arrivals])
    (folder / "nginx").write_text("\n".join([_nginx(end, each) for end, each in answers]))
    (folder / "combined").write_text("\n".join([_combined(end, each) for end, each in answers]))


def _nginx(end: float, arrival: Arrival) -> str:
    times = {"msec": f"{START + end:.3f}", "request_time": f"{end - arrival.time:.3f}"}
    return json.dumps({**times, "remote_addr": arrival.client, "request_uri": arrival.path})


def _combined(time: float, arrival: Arrival) -> str:
    at = strftime("%d/%b/%Y:%H:%M:%S +0000", gmtime(START + time))
    return f'{arrival.client} - - [{at}] "GET {arrival.path} HTTP/1.1" 200 5 "-" "-"'


def live_refusals(arrivals: Sequence[Arrival], quota: str, search: str) -> Counter[str]:
    """How many requests an app refuses under these limits, by rule."""
    refused: Counter[str] = Counter()

    def count(event: Event) -> None:
        charges = event.decision.take.charges if event.decision.take else ()
        for charge, state in zip(charges, event.decision.states):
            refused[charge.name or ""] += not state.allowed

    clock = SteppedClock()
    rules = [Rule("/search", search, name="/search")]
    app = RateLimitMiddleware(ok, quota, rules=rules, store=MemoryStore(clock=clock), hooks=[count])
    statuses = asyncio.run(answered(app, clock, arrivals))
    refused["all"] = statuses.count(429)
    return refused


@pytest.mark.parametrize(("quota", "search"), [("30/minute", "8/minute"), ("1/s burst 2", "1 per 2 s")])
def test_a_log_foretells_what_a_limit_refuses(
    quota: str, search: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly by a log with fractions, within 1 % by logs of the answers; by rule, where the times are of requests."""
    arrivals = benchmark_arrivals(seconds=90, known=60, new=200, rate=40)
    write_logs(tmp_path, arrivals)
    live = live_refusals(arrivals, quota, search)
    assert min(live.values()) > 200
    for log, error, by_rule in LOGS:
        arguments = ["what-if", str(tmp_path / log), "--quota", quota, "--rule", f"/search {search}", "--json"]
        assert main(arguments) == 0
        report = json.loads(capsys.readouterr().out)
        foretold = {rule["name"]: rule["refused"] for rule in report["rules"]} | {"all": report["refused"]}
        assert foretold["all"] == pytest.approx(live["all"], rel=error), log
        assert not by_rule or foretold == pytest.approx(live, rel=error), log
