"""Child processes that start together: each says that it is ready, and begins when it is told to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tests.support.server import ROOT


def run_together(commands: Sequence[Sequence[str]], word: str, within: float) -> list[str]:
    """What each of some Python programs prints after ``ready``, where all have read ``word`` once all were ready."""
    pipe = subprocess.PIPE
    children = [
        subprocess.Popen((sys.executable, "-W", "error", *command), cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        for command in commands
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(f"{word}\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=within)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(children)
    return outputs
