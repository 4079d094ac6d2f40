"""The command ``record``: an app on a real server, and what its recording foretells."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from asgi_ratelimit.tools.cli import main
from tests.support.server import HOST, Uvicorn

APP = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from asgi_ratelimit import RateLimitMiddleware

async def show(request):
    return PlainTextResponse("fine")

app = Starlette(routes=[Route("/{page:path}", show)])
limited = RateLimitMiddleware(app, "7/hour")
"""


class Recording(Uvicorn):
    """The command, instead of uvicorn's own."""

    def __init__(self, folder: Path) -> None:
        super().__init__("main:app", app_dir=folder)
        self._command = ("record", "main:app", "--app-dir", str(folder), "--out", str(folder / "requests.jsonl"))

    def command(self) -> Sequence[str]:
        """The command line."""
        options = ("--host", HOST, "--port", str(self.port), "--show-keys")
        return (sys.executable, "-m", "asgi_ratelimit", *self._command, *options)


def statuses(server: Uvicorn) -> Counter[int]:
    """The statuses of some requests."""
    with httpx.Client(trust_env=False, base_url=server.url) as client:
        return Counter([client.get(f"/page/{number}?q=1").status_code for number in range(20)])


def test_a_recording_of_a_server_foretells_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run under the limit refuses as many as the replay of a run without it."""
    (tmp_path / "main.py").write_text(APP, "utf-8")
    with Recording(tmp_path) as server:
        assert statuses(server) == {200: 20}
    assert main(["what-if", str(tmp_path / "requests.jsonl"), "--quota", "7/hour", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    with Uvicorn("main:limited", app_dir=tmp_path) as server:
        refused = statuses(server)[429]
    assert (report["refused"], report["clients"], report["unreadable"]) == (refused, 1, 0)
    assert report["requests"] >= 20
    assert report["rules"][0]["top"][0]["key"] == HOST


def test_an_app_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is recorded."""
    assert main(["record", "nowhere:app", "--out", str(tmp_path / "a")]) == 2
    assert capsys.readouterr().err.endswith("asgi-ratelimit record nowhere:app --app-dir src\n")
    assert not (tmp_path / "a").exists()
