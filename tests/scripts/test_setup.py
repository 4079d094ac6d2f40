"""What the scripts say before they do anything: of a Python that is too old or not there, and how they are used."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.redis_servers import SERVERS
from tests.support.server import ROOT


def servers(*arguments: str, path: Path | None = None, **variables: str) -> tuple[int, str, str]:
    """The exit code of ``scripts/servers`` and its output, where ``path`` is all that is found besides the system."""
    environment = {**os.environ, **variables, "PATH": f"{path}:/usr/bin:/bin"}
    command = ["bash", str(ROOT / "scripts/servers"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_usage(option: str) -> None:
    """With the names of all servers."""
    code, out, err = servers(option)
    assert (code, err) == (0, "")
    assert out.startswith("usage: scripts/servers ")
    assert all(server.name in out for server in SERVERS)


@pytest.mark.parametrize("version", ["3.10", "3.9", "2.7", "3", "312", "python3.12", "3.12.1"])
def test_a_python_that_is_too_old(version: str) -> None:
    """It is told at once, before anything is made."""
    error = f"error: USE_PYTHON must be 3.11 or newer, not {version}: USE_PYTHON=3.12\n"
    assert servers(USE_PYTHON=version) == (1, "", error)
    assert not (ROOT / f".venv-{version}").exists()


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    """The error says so, also where pyenv is there but has no such version, and names what is found."""
    for name, says in (("pyenv", tmp_path), ("python3.12", "Python 3.12.99")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    code, out, err = servers(path=tmp_path, USE_PYTHON="3.99")
    first, *found = err.splitlines()
    assert (code, out) == (1, "")
    assert first == "error: Python 3.99 with its venv module (python3-venv on Debian) is needed. Found:"
    assert f"  {tmp_path}/python3.12: Python 3.12.99" in found
    assert "No such file" not in err
    assert not (ROOT / ".venv-3.99").exists()
