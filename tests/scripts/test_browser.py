"""Where the browser of the tests comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import chromium


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which no browser is, and a folder to download one to."""
    monkeypatch.setattr(chromium, "FOLDER", tmp_path / "browser")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_one_on_path_is_used(empty_machine: Path) -> None:
    """Nothing is downloaded."""
    program = empty_machine / "chromium"
    program.touch(0o755)
    assert chromium.path() == str(program)


def test_without_one_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the page fail then; they are not skipped."""

    def fail(*command: str, cwd: str | None = None) -> str:
        raise subprocess.CalledProcessError(100, command, stderr="E: Unable to fetch some archives")

    monkeypatch.setattr(chromium, "run", fail)
    monkeypatch.setattr(chromium, "options_of_apt", lambda cache, pocket: [])
    with pytest.raises(RuntimeError, match=r"Unable to fetch(.|\n)*Install Debian's package chromium-headless-shell"):
        chromium.path()
