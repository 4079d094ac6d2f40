"""The commands of the README: a limited app, its page, and a limit that is changed while the app runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.support.dashboards import BY_SCRIPT
from tests.support.server import ROOT, Uvicorn

README = (ROOT / "README.md").read_text("utf-8")
TRY_IT = README[README.index("## Try it") : README.index("## Quotas")]
TUTORIAL = (ROOT / "docs" / "tutorials" / "live-change.md").read_text("utf-8")
SERVER, CLIENT = re.findall(r"^```sh\n(.*?)^```", TRY_IT, re.MULTILINE | re.DOTALL)
REQUESTS, PAGE = CLIENT.splitlines()
README_URL = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def server() -> Iterator[Uvicorn]:
    """The app that the first block starts, on another port."""
    assert SERVER.split() == [".venv/bin/uvicorn", "--app-dir", "examples", "dashboard_app:app"]
    with Uvicorn("dashboard_app:app", app_dir=ROOT / "examples") as server:
        yield server


def test_a_limit_is_changed_live(server: Uvicorn) -> None:
    """The requests get what the text says, and again after the change that the text describes."""
    said = re.findall(r"prints `([\d ]+)`", TRY_IT)
    (quota,) = re.findall(r"write `([^`]+)`", TRY_IT)
    assert [sent(REQUESTS, server)] == said
    assert README_URL + "/limits/" in PAGE
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        headers = {**BY_SCRIPT, "origin": server.url}
        assert client.post("/limits/set", data={"rule": "login", "quota": quota}, headers=headers).status_code == 200
    assert sent(REQUESTS, server).split() == ["200"] * 8


def test_the_tutorial_says_the_same() -> None:
    """Its limit and its requests are those of the README."""
    assert re.findall(r"write\s+`([^`]+)`", TUTORIAL) == re.findall(r"write `([^`]+)`", TRY_IT)
    assert REQUESTS in TUTORIAL


def sent(command: str, server: Uvicorn) -> str:
    """What a command prints that talks to the server."""
    return subprocess.check_output(["bash", "-c", command.replace(README_URL, server.url)], text=True).strip()
