"""Timelines of a simulation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from asgi_ratelimit.tools.plot import counts, save_png, timeline

SERIES = {"came": [0.0, 0.0, 0.0, 0.0, 1.0, 2.0], "went": [0.0, None, None, 1.0, 3.9, 4.0]}


def test_a_timeline_of_text() -> None:
    """The highest count has the full height, and a single one is still visible."""
    assert timeline(SERIES, 8) == ["came  █ ▂ ▂   ", "went  ▂ ▂    ▄", "      0    4 s"]


def test_times_that_are_all_equal() -> None:
    """The timeline is a second long."""
    assert timeline({"came": [5.0, 5.0]}, 4) == ["came  █   ", "      01 s"]


def test_every_time_is_counted_once() -> None:
    """The last one too; refused requests are not counted."""
    assert counts([0.0, 0.5, 1.0, 2.0, None], 0.0, 2.0, 4) == [1, 1, 1, 1]


def test_a_png(tmp_path: Path) -> None:
    """It is a valid file."""
    save_png(tmp_path / "drawing", SERIES)
    assert (tmp_path / "drawing").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib(tmp_path: Path) -> None:
    """The command names the package to install, before it prints anything, and needs it for a PNG only."""
    code = "import sys; sys.modules['matplotlib'] = None; from asgi_ratelimit.tools.cli import main; sys.exit(main())"
    command = (sys.executable, "-c", code, "simulate", "10/s", "--arrivals", "5/s")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    done = subprocess.run((*command, "--png", str(tmp_path / "x")), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "asgi-ratelimit-pacer[plot]"' in done.stderr
