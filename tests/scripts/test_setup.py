"""What the scripts say of a Python that is too old, before they do anything."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.support.server import ROOT


@pytest.mark.parametrize("version", ["3.10", "3.9", "2.7", "3", "312", "python3.12", "3.12.1"])
def test_a_python_that_is_too_old(version: str) -> None:
    """It is told at once, before anything is made."""
    environment = {**os.environ, "USE_PYTHON": version}
    command = ["bash", str(ROOT / "scripts/servers")]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    error = f"error: USE_PYTHON must be 3.11 or newer, not {version}: USE_PYTHON=3.12\n"
    assert (run.returncode, run.stdout, run.stderr) == (1, "", error)
    assert not (ROOT / f".venv-{version}").exists()
