"""What ``scripts/matrix`` runs: every Redis, and every Python."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.redis_servers import SERVERS
from tests.support.server import ROOT


def plan(*others: str) -> list[tuple[str, str, str]]:
    """The Python, the server and the tests of each run, where ``.venv`` is of 3.11, and there are these others."""
    (function,) = re.findall(
        r"^plan\(\) \{.*?^\}", (ROOT / "scripts/matrix").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    program = f"first=3.11\nothers=({' '.join(others)})\n{function}\nplan"
    lines = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(python, server, what) for python, server, what in map(str.split, lines)]


@pytest.mark.parametrize("others", [(), ("3.12",), ("3.12", "3.13")], ids=len)
def test_every_server_runs_what_touches_redis(others: tuple[str, ...]) -> None:
    """Once, whichever Pythons there are."""
    assert sorted(server for _, server, _ in plan(*others)) == sorted(server.name for server in SERVERS)


def test_what_does_not_touch_redis_runs_once_on_each_python() -> None:
    """Together with what does, each with another server; the other runs are of ``redis`` alone."""
    runs = [(python, what) for python, _, what in plan("3.12", "3.13") if what != "redis"]
    assert runs == [("3.11", "everything"), ("3.12", "most"), ("3.13", "most")]
