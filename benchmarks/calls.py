"""How many Python calls and files of ours one request takes: ``python -m benchmarks.calls [--verbose]``.

The middleware has a default quota and one rule that matches. It counts the ``call`` events of ``sys.setprofile`` whose
code is in a file of this package, from the start of the request until the app returns, in all tasks of the event loop's
thread. On Python 3.11 these include comprehensions and resumed coroutines. Generated code, such as the ``__init__`` of
a dataclass, has ``<string>`` as its file; it is counted apart, whether this package or another one generated it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, TypeAlias

from starlette.types import ASGIApp, Message

import asgi_ratelimit
from tests.support.redis_server import RedisServer

from .apps.shapes import Case, build
from .processes.direct_client import address_of, receive, scope_of
from .processes.lifespan import lifespan
from .reporting.report import grid
from .subject import Where

PACKAGE = f"{Path(asgi_ratelimit.__file__).parent}/"
GENERATED = "<string>"
SHAPE, A_MINUTE = "default+rule", 1000
WARM, MEASURED = 120, 21
"""Clients that come first, and clients whose requests are counted."""

Function: TypeAlias = tuple[str, str]
"""A file, relative to the package, and a function in it."""

GOALS: dict[Where, tuple[int, int]] = {"memory": (30, 8), "redis": (60, 13)}
"""The most calls, and the most files."""


@dataclass(slots=True)
class Calls:
    """The calls of one request, by function of ours, and the calls of generated code."""

    functions: Counter[Function] = field(default_factory=Counter)
    generated: int = 0

    @property
    def total(self) -> int:
        return self.functions.total()

    @property
    def files(self) -> int:
        return len({file for file, _ in self.functions})

    def record(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function for ``sys.setprofile``."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.functions[code.co_filename.removeprefix(PACKAGE), code.co_qualname] += 1
        elif code.co_filename == GENERATED:
            self.generated += 1


async def calls_of(app: ASGIApp, state: dict[str, Any], client: int) -> Calls:
    """The calls of one request of this client. Raises ``RuntimeError`` if it is not answered with 200."""
    calls, statuses = Calls(), list[int]()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = scope_of(address_of(client), state)
    sys.setprofile(calls.record)
    try:
        await app(scope, receive, send)
    finally:
        sys.setprofile(None)
    if statuses != [200]:
        raise RuntimeError(f"a request was answered with {statuses}")
    return calls


async def measure(app: ASGIApp) -> tuple[list[Calls], list[Calls]]:
    """The first requests of some clients, and the second ones of the same clients."""
    new, known = [], []
    async with lifespan(app) as state:
        for client in range(WARM):
            await calls_of(app, state, client)
        for number in range(MEASURED):
            new.append(await calls_of(app, state, WARM + number))
            known.append(await calls_of(app, state, WARM + number))
    return new, known


def typical(requests: Sequence[Calls]) -> Calls:
    """The request with the median number of calls."""
    return sorted(requests, key=lambda calls: calls.total)[len(requests) // 2]


def row(where: Where, client: str, requests: Sequence[Calls], most: int, most_files: int) -> list[str]:
    calls, files = (median(each) for each in zip(*((one.total, one.files) for one in requests), strict=True))
    generated = median(one.generated for one in requests)
    return [f"{where}, {client} client", f"{calls:g}", str(most), f"{files:g}", str(most_files), f"{generated:g}"]


def functions(title: str, calls: Calls) -> str:
    """The list of one request's calls, most first."""
    lines = [f"{count:4}  {file}  {name}" for (file, name), count in calls.functions.most_common()]
    return "\n".join([f"{title}:", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench calls", description="Calls and files of ours for a request.")
    parser.add_argument("--verbose", action="store_true", help="list the calls of a typical request by function")
    verbose = parser.parse_args().verbose
    rows, lists = [], []
    for where, (most, most_files) in GOALS.items():
        with ExitStack() as stack:
            url = stack.enter_context(RedisServer()).url if where == "redis" else ""
            new, known = asyncio.run(measure(build("ours", Case(SHAPE, where, url, A_MINUTE))))
        rows.append(row(where, "known", known, most, most_files))
        rows.append(row(where, "new", new, most, most_files))
        lists += [functions(f"{where}, known client", typical(known)), functions(f"{where}, new client", typical(new))]
    print(grid(["", "calls", "at most", "files", "at most", "generated"], rows, text=(0,)))
    if verbose:
        print("", *lists, sep="\n\n")


if __name__ == "__main__":
    main()
