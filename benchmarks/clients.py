"""Who asks the servers: wrk where there is one, and otherwise ``benchmarks.load``, from a process of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

from tests.server import HOST, ROOT

from .results import unexpected

CONNECTIONS = 50


def load_generator() -> str:
    return "wrk" if shutil.which("wrk") else "benchmarks.load"


def rate(port: int, seconds: float) -> tuple[float, str]:
    """Answers a second, and what was wrong with them, if anything."""
    return _wrk(port, seconds) if load_generator() == "wrk" else _own(port, seconds)


def _own(port: int, seconds: float) -> tuple[float, str]:
    command = (sys.executable, "-m", "benchmarks.load", str(port), str(CONNECTIONS), str(seconds))
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        return float("nan"), _last_line(said.stderr)
    answer = json.loads(said.stdout)
    return sum(answer["statuses"].values()) / answer["seconds"], unexpected(answer["statuses"], ("200",))


def _wrk(port: int, seconds: float) -> tuple[float, str]:
    """wrk takes whole seconds only."""
    command = ("wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", f"http://{HOST}:{port}/")
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Requests/sec: *([\d.]+)", said.stdout)
    wrong = re.search(r"Non-2xx or 3xx responses: \d+|Socket errors: .*", said.stdout)
    if found is None:
        return float("nan"), _last_line(said.stderr)
    return float(found[1]), wrong[0] if wrong else ""


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1][:120]
