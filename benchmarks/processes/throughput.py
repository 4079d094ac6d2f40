"""The throughput of a server, measured by wrk if it is on PATH and by ``benchmarks.processes.load`` otherwise."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass

from tests.support.server import HOST, ROOT

from ..reporting.results import NAN, unexpected

CONNECTIONS = 50


@dataclass(frozen=True, slots=True)
class Answers:
    """How many there were, how many a second, and the error among them, if any."""

    count: int
    a_second: float
    error: str


def load_generator() -> str:
    return "wrk" if shutil.which("wrk") else "benchmarks.processes.load"


def rate(port: int, seconds: float) -> Answers:
    """Send requests to the server on that port, over ``CONNECTIONS`` connections and as fast as it answers."""
    return _wrk(port, seconds) if load_generator() == "wrk" else _own(port, seconds)


def _own(port: int, seconds: float) -> Answers:
    command = (sys.executable, "-m", "benchmarks.processes.load", str(port), str(CONNECTIONS), str(seconds))
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if completed.returncode:
        return Answers(0, NAN, _last_line(completed.stderr))
    answer = json.loads(completed.stdout)
    count = sum(answer["statuses"].values())
    return Answers(count, count / answer["seconds"], unexpected(answer["statuses"], ("200",)) or _error_if_none(count))


def _wrk(port: int, seconds: float) -> Answers:
    """wrk takes whole seconds only, so it is interrupted; its rate is over the time that it ran."""
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
    return Answers(int(count[1]), float(a_second[1]), wrong[0] if wrong else _error_if_none(int(count[1])))


def _error_if_none(count: int) -> str:
    return "" if count else "no answers"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["the process ended without a message"])[-1][:120]
