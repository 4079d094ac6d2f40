"""Who asks the servers: wrk where there is one, and otherwise ``benchmarks.load``, from a process of its own."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass

from tests.support.server import HOST, ROOT

from .results import NAN, unexpected

CONNECTIONS = 50


@dataclass(frozen=True, slots=True)
class Answers:
    """How many there were, how many a second, and what was wrong with them, if anything."""

    count: int
    a_second: float
    error: str


def load_generator() -> str:
    return "wrk" if shutil.which("wrk") else "benchmarks.load"


def rate(port: int, seconds: float) -> Answers:
    """The answers of the server on that port to ``CONNECTIONS`` that ask as fast as they can."""
    return _wrk(port, seconds) if load_generator() == "wrk" else _own(port, seconds)


def _own(port: int, seconds: float) -> Answers:
    command = (sys.executable, "-m", "benchmarks.load", str(port), str(CONNECTIONS), str(seconds))
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        return Answers(0, NAN, _last_line(said.stderr))
    answer = json.loads(said.stdout)
    count = sum(answer["statuses"].values())
    return Answers(count, count / answer["seconds"], unexpected(answer["statuses"], ("200",)) or _none(count))


def _wrk(port: int, seconds: float) -> Answers:
    """Interrupted, for it takes whole seconds only; it reckons with the time that it had."""
    command = ("wrk", "-t1", f"-c{CONNECTIONS}", "-d60s", f"http://{HOST}:{port}/")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as wrk:
        try:
            output, errors = wrk.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            wrk.send_signal(signal.SIGINT)
            output, errors = wrk.communicate()
    count = re.search(r"(\d+) requests in", output)
    a_second = re.search(r"Requests/sec: *([\d.]+)", output)
    if count is None or a_second is None:
        return Answers(0, NAN, _last_line(errors))
    wrong = re.search(r"Non-2xx or 3xx responses: \d+|Socket errors: .*", output)
    return Answers(int(count[1]), float(a_second[1]), wrong[0] if wrong else _none(int(count[1])))


def _none(count: int) -> str:
    return "" if count else "no answers"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1][:120]
