"""Programs that tests run as processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.support.server import ROOT

PATIENCE = 120.0


def outcome_of(program: str, argument: str, *options: str) -> tuple[int, str, str]:
    """The exit code of a program, what it has printed, and what it has complained of; warnings are errors."""
    command = (sys.executable, "-W", "error", *options, "-c", textwrap.dedent(program), argument)
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return run.returncode, run.stdout, run.stderr
