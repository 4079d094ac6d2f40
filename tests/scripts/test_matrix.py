"""What ``scripts/matrix`` runs: what touches Redis, on each pair of Python and Redis."""

from __future__ import annotations

import re
import subprocess
from itertools import product

from tests.support.redis_servers import SERVERS
from tests.support.server import ROOT

PYTHONS = ("3.11", "3.12", "3.13")


def plan() -> list[tuple[str, str, str]]:
    """The Python, the server and the tests of each run, where ``.venv`` is of 3.11."""
    (function,) = re.findall(
        r"^plan\(\) \{.*?^\}", (ROOT / "scripts/matrix").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    program = f"first=3.11\nothers=(3.12 3.13)\n{function}\nplan"
    lines = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(python, server, what) for python, server, what in map(str.split, lines)]


def test_each_pair_has_one_run() -> None:
    """Every server that the tests know, on every Python."""
    pairs = sorted((python, server) for python, server, _ in plan())
    assert pairs == sorted(product(PYTHONS, [server.name for server in SERVERS]))


def test_what_does_not_touch_redis_runs_once_on_each_python() -> None:
    """Together with what does, on one server; the other runs are of ``redis`` alone."""
    assert [(python, what) for python, _, what in plan() if what != "redis"] == [
        ("3.11", "everything"),
        ("3.12", "most"),
        ("3.13", "most"),
    ]
