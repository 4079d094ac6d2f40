"""Ends the process groups that a test run has started, even where the run itself is killed."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from functools import cache

# Its input ends when this process ends, for whatever reason.
WATCHER = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def watch(group: int) -> None:
    """End this process group as soon as this process has ended."""
    _tell(f"+{group}")


def forget(group: int) -> None:
    """This process group has ended."""
    _tell(f"-{group}")


def _tell(line: str) -> None:
    os.write(_pipe(os.getpid()), f"{line}\n".encode())


@cache
def _pipe(process: int) -> int:
    """The input of a watcher, one for each process: a fork needs its own."""
    watcher = subprocess.Popen(
        (sys.executable, "-I", "-S", "-c", WATCHER), stdin=subprocess.PIPE, text=True, start_new_session=True
    )
    assert watcher.stdin is not None
    atexit.register(watcher.communicate)
    return watcher.stdin.fileno()
