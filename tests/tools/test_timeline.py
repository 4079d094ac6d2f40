"""Drawings of a simulation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from asgi_ratelimit.tools.plot import counts, drawn, save_png

SERIES = {"came": [0.0, 0.0, 0.0, 0.0, 1.0, 2.0], "went": [0.0, None, None, 1.0, 3.9, 4.0]}


def test_lines_of_text() -> None:
    """The most of all is as high as it goes, and one of many is still seen."""
    assert drawn(SERIES, 8) == ["came  █ ▂ ▂   ", "went  ▂ ▂    ▄", "      0    4 s"]


def test_what_takes_no_time() -> None:
    """It is drawn over a second."""
    assert drawn({"came": [5.0, 5.0]}, 4) == ["came  █   ", "      01 s"]


def test_everything_is_counted_once() -> None:
    """The last moment, too; what was refused is not there."""
    assert counts([0.0, 0.5, 1.0, 2.0, None], 0.0, 2.0, 4) == [1, 1, 1, 1]


def test_a_png(tmp_path: Path) -> None:
    """It is one."""
    save_png(tmp_path / "drawing", SERIES)
    assert (tmp_path / "drawing").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib(tmp_path: Path) -> None:
    """The command says what to install, and does not know it before it is asked for a PNG."""
    code = "import sys; sys.modules['matplotlib'] = None; from asgi_ratelimit.tools.cli import main; sys.exit(main())"
    command = (sys.executable, "-c", code, "simulate", "10/s", "--arrivals", "5/s")
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    done = subprocess.run((*command, "--png", str(tmp_path / "x")), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "asgi-ratelimit-pacer[plot]"' in done.stderr
