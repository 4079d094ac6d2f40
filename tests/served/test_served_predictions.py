"""What-if on a log of a benchmark's load, beside a live run of the same load under the limit."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from asgi_ratelimit.tools.cli import main
from tests.support.scheduled_load import WARM, Arrival, benchmark_arrivals, send
from tests.support.server import Uvicorn

APP = """
import json
import os
import time
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from asgi_ratelimit import RateLimitMiddleware
from asgi_ratelimit.keys import client_ip

async def show(request):
    client, path, came = request.headers["x-forwarded-for"], request.url.path, time.time()
    now = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(came))
    access_log.write(f'{client} - - [{now}] "GET {path} HTTP/1.1" 200 4 "-" "-"\\n')
    json_log.write(json.dumps({"time": came, "key": client, "path": path}) + "\\n")
    return PlainTextResponse("fine")

access_log = open(os.environ["LOG"] + ".log", "a", buffering=1)
json_log = open(os.environ["LOG"] + ".jsonl", "a", buffering=1)
app = Starlette(routes=[Route("/{page:path}", show)])
limited = app
if "LIMITS" in os.environ:
    limited = RateLimitMiddleware(app, config=os.environ["LIMITS"], key=client_ip(["127.0.0.1"]))
"""

LIMITS = """
quota = "{}"

[[rules]]
path = "/search"
name = "search"
quota = "{}"
only = true

[[rules]]
path = "/warm"
exempt = true
"""


def logged(path: Path) -> list[Arrival]:
    """The requests of a log, after those that warm up, at the times at which they came."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    arrivals = [Arrival(line["time"], line["key"], line["path"]) for line in lines if line["path"] != WARM]
    return [each._replace(time=each.time - arrivals[0].time) for each in arrivals]


@pytest.mark.long
@pytest.mark.parametrize(
    ("quota", "search"),
    [("20/minute", "10/minute"), ("1/s burst 10", "4 per 2 s"), ("60/minute rolling", "8 per 10 s rolling")],
)
def test_what_if_predicts_a_live_run(
    quota: str, search: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 1 % of the refusals, in all and by rule, for many clients, known and new.

    By an access log in whole seconds, within 2 %.
    """
    logs = {"sent.jsonl": 0.01, "sent.log": 0.02}
    limits = tmp_path / "limits.toml"
    (tmp_path / "main.py").write_text(APP, "utf-8")
    limits.write_text(LIMITS.format(quota, search), "utf-8")
    planned = benchmark_arrivals(seconds=15, known=60, new=400, rate=250)
    with Uvicorn("main:app", "--no-proxy-headers", app_dir=tmp_path, env={"LOG": str(tmp_path / "sent")}) as server:
        assert set(asyncio.run(send(server.port, planned))) == {200}
    arrivals = logged(tmp_path / "sent.jsonl")
    assert len(arrivals) == len(planned)
    predicted = {name: foretold(tmp_path / name, limits, capsys) for name in logs}
    env = {"LIMITS": str(limits), "LOG": str(tmp_path / "live")}
    with Uvicorn("main:limited", "--no-proxy-headers", app_dir=tmp_path, env=env) as server:
        statuses = asyncio.run(send(server.port, arrivals))
    answers = zip(arrivals, statuses, strict=True)
    refused = Counter(["search" if each.path == "/search" else "default" for each, status in answers if status == 429])
    assert set(statuses) == {200, 429}
    assert min(refused.values()) > 200
    for name, error in logs.items():
        assert predicted[name].total() == pytest.approx(refused.total(), rel=error)
        assert predicted[name] == pytest.approx(refused, rel=error)


def foretold(log: Path, limits: Path, capsys: pytest.CaptureFixture[str]) -> Counter[str]:
    """What what-if says of a log: the refusals by rule."""
    assert main(["what-if", str(log), "--config", str(limits), "--json"]) == 0
    return Counter({rule["name"]: rule["refused"] for rule in json.loads(capsys.readouterr().out)["rules"]})
