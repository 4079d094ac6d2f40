"""Clients of servers whose limits they do not know: how much of what is permitted they use, and what they lose.

``scripts/bench adaptive`` prints a table and writes it to ``benchmarks/results/adaptive.md``; ``--seconds 10`` makes it
short, and writes nothing. Each library keeps each server busy, from one process and from four that share a Redis.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.adaptive_callers import HIDDEN, RATE
from tests.stand_ins.counting_server import counting_server
from tests.stand_ins.discord_server import discord_server
from tests.support.redis_server import RedisServer
from tests.support.server import ROOT, Uvicorn

PEERS = {"adaptive-rate-limiter": "1.3", "adaptive-concurrency": "0.1"}
LIBRARIES = ("no limiter", "ours", *PEERS)
PROCESSES = (1, 4)
HEADS = ("", "of what was permitted", "refused", "refused, %", "lost", "stuck", "CPU µs a request")


def openai_server() -> Uvicorn:
    """OpenAI's stand-in: 40 requests a second, and tokens enough."""
    limits = json.dumps({"requests": [RATE, 1.0], "tokens": [1_000_000, 1.0]})
    return Uvicorn("tests.stand_ins.openai_server:app", env={"STAND_IN_LIMITS": limits})


SERVICES = {
    "openai": (openai_server, RATE, RATE),
    "discord": (lambda: discord_server(limit=5, period=1, sliding=1), 50, 0),
    HIDDEN: (lambda: counting_server("bucket", RATE, unit="never"), RATE, RATE),
}
"""The servers, what each permits in a second, and how much more at once. 20 channels of Discord have 100 a second
together, but no more than its global limit."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a server has served and refused."""

    served: int
    refused: int


def counts_of(service: str, server: Uvicorn) -> Counts:
    """What a server has counted until now."""
    path = "/stand-in/report" if service == "openai" else "/counts"
    with urlopen(Request(f"{server.url}{path}", headers={"authorization": "Bearer 1"})) as response:
        counts: dict[str, Any] = json.load(response)
    counts = counts.get("small", counts)
    return Counts(counts.get("admitted", counts.get("served", 0)), counts.get("refused", 0))


def measure(library: str, service: str, processes: int, seconds: float) -> list[str]:
    """One row: a library, a server, and so many processes."""
    make, rate, burst = SERVICES[service]
    with make() as server, RedisServer() if processes > 1 else nullcontext() as redis:
        store = redis.url if redis else ""
        command = ["-m", "benchmarks.adaptive_callers", library, service, server.url, store]
        done = run([*command, str(seconds)], processes, seconds * 3 + 60)
        counts = counts_of(service, server)
    total = {name: sum(each[name] for each in done) for name in ("calls", "lost", "stuck", "cpu")}
    requests = max(counts.served + counts.refused, 1)
    return [
        f"{library}, {processes}",
        f"{counts.served / (rate * seconds + burst):.2f}",
        str(counts.refused),
        f"{counts.refused / requests * 100:.1f}",
        f"{total['lost']:.0f}",
        f"{total['stuck'] + (processes - len(done)):.0f}",
        f"{total['cpu'] / requests * 1e6:.0f}",
    ]


def run(command: list[str], processes: int, within: float) -> list[dict[str, float]]:
    """What each of some programs prints; they begin together. One that hangs or fails has no result."""
    pipe = subprocess.PIPE
    children = [
        subprocess.Popen((sys.executable, *command), cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        for _ in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    results, deadline = [], time.monotonic() + within
    for child in children:
        assert child.stdin is not None
        child.stdin.write("begin\n")
        child.stdin.flush()
    for child in children:
        try:
            output, _ = child.communicate(timeout=max(deadline - time.monotonic(), 1.0))
            results.append(json.loads(output))
        except (subprocess.TimeoutExpired, ValueError):
            child.kill()
            child.communicate()
    return results


def missing() -> list[str]:
    """The peers that are not installed, or are another version."""
    absent = []
    for name, wanted in PEERS.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            installed = "nothing"
        if not installed.startswith(wanted):
            absent.append(f"{name} {wanted} IS NOT MEASURED: {installed} is installed")
    return absent


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench adaptive")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each library keeps each server busy")
    parser.add_argument("--only", default="", help=f"of {', '.join(SERVICES)}; with commas")
    arguments = parser.parse_args()
    absent = missing()
    print(*absent, sep="\n", file=sys.stderr)
    libraries = [name for name in LIBRARIES if not any(text.startswith(name) for text in absent)]
    parts = [f"{arguments.seconds:g} s each.", *absent]
    for service in arguments.only.split(",") if arguments.only else SERVICES:
        lines: list[list[str]] = [[service, *HEADS[1:]], ["---", *["---:"] * (len(HEADS) - 1)]]
        for processes in PROCESSES:
            for library in libraries:
                lines.append(measure(library, service, processes, arguments.seconds))
                print(service, *lines[-1], sep="  ", flush=True)
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    text = "\n\n".join(parts)
    print(f"\n{text}")
    if arguments.seconds >= 30 and not arguments.only:
        heading = "# Clients that do not know the limits"
        (ROOT / "benchmarks" / "results" / "adaptive.md").write_text(f"{heading}\n\n{text}\n")


if __name__ == "__main__":
    main()
