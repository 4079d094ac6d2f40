"""What ``scripts/matrix`` runs: every Redis, and every Python."""

from __future__ import annotations

import re
import subprocess

from tests.support.redis_servers import SERVERS
from tests.support.server import ROOT


def plan() -> list[tuple[str, str, str]]:
    """The Python, the server and the tests of each run, where ``.venv`` is of 3.11."""
    (function,) = re.findall(
        r"^plan\(\) \{.*?^\}", (ROOT / "scripts/matrix").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    program = f"first=3.11\nothers=(3.12 3.13)\n{function}\nplan"
    lines = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(python, server, what) for python, server, what in map(str.split, lines)]


def test_every_server_runs_what_touches_redis() -> None:
    """On one Python, where a failure on one server alone is that server's."""
    servers = sorted(server for python, server, _ in plan() if python == "3.11")
    assert servers == sorted(server.name for server in SERVERS)


def test_what_does_not_touch_redis_runs_once_on_each_python() -> None:
    """Together with what does, each with another server; the other runs are of ``redis`` alone."""
    runs = [(python, what, server) for python, server, what in plan() if what != "redis"]
    assert [run[:2] for run in runs] == [("3.11", "everything"), ("3.12", "most"), ("3.13", "most")]
    assert len({server for _, _, server in runs}) == 3
