"""The command ``simulate``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from asgi_ratelimit.tools.cli import main

SIMULATED = """\
At most 5 at once, earned back at 10 per second; in any second up to 15 may pass.

                 admitted   refused    in 1 s  wait:       50 %      90 %      99 %       max
rate limiting          24        16        14           0.000 s   0.000 s   0.000 s   0.000 s
pacing                 40         0        14           0.550 s   1.350 s   1.550 s   1.550 s
"""


def test_simulate_shows_both_modes(capsys: pytest.CaptureFixture[str]) -> None:
    """How many requests are admitted and refused, how long they wait, and when they pass."""
    assert main(["simulate", "10/s burst 5", "--arrivals", "20/s", "--seconds", "2"]) == 0
    output = capsys.readouterr().out
    assert output.startswith(SIMULATED)
    assert [line.split("  ")[0] for line in output.splitlines()[6:9]] == ["requests", "rate limiting", "pacing"]
    assert output.splitlines()[9].split() == ["0", "3.5", "s"]


def test_wide_columns_stay_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Waits of hours have two spaces before them, as the names of their columns have."""
    assert main(["simulate", "1/hour", "--arrivals", "1/s", "--seconds", "500"]) == 0
    header, limited, paced = capsys.readouterr().out.splitlines()[2:5]
    assert [len(header), len(limited)] == [len(paced)] * 2
    assert re.split(" {2,}", limited) == ["rate limiting", "1", "499", "1", *["0.000 s"] * 4]
    assert re.split(" {2,}", paced)[-2:] == ["1777906.000 s", "1795901.000 s"]


def test_simulate_reads_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file has a time in each line; a quota without a burst paces evenly."""
    log = tmp_path / "access.log"
    log.write_text('- - [10/Oct/2026:13:55:37 +0000] "GET /"\n' * 30)
    assert main(["simulate", "10/s", "--log", str(log)]) == 0
    limited, paced = capsys.readouterr().out.splitlines()[3:5]
    assert limited.split()[2:4] == ["10", "20"]
    assert paced.split()[1:5] == ["30", "0", "10", "1.400"]


def test_simulate_draws_a_png(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Instead of the timeline in text."""
    png = tmp_path / "drawing.png"
    assert main(["simulate", "10/s", "--arrivals", "20/s poisson", "--png", str(png)]) == 0
    assert f"drawn in {png}" in capsys.readouterr().out
    assert png.stat().st_size > 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["10/fortnight", "--arrivals", "5/s"],
        ["10/s", "--arrivals", "often"],
        ["10/s", "--arrivals", "5/s", "--seconds", "0"],
        ["10/s", "--arrivals", "1/day poisson"],
        ["10/s", "--arrivals", "5/s", "--cost", "0"],
        ["10/s", "--arrivals", "5/s", "--max-delay", "-1"],
        ["10/s", "--log", "/nowhere/at/all"],
    ],
    ids=" ".join,
)
def test_simulate_says_what_is_wrong(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With one error, and exit code 2."""
    assert main(["simulate", *arguments]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_simulate_shows_no_waits_where_none_is_admitted(capsys: pytest.CaptureFixture[str]) -> None:
    """A dash stands in their place."""
    assert main(["simulate", "1/s fixed", "--arrivals", "5/s", "--seconds", "1", "--cost", "5"]) == 0
    for line in capsys.readouterr().out.splitlines()[3:5]:
        assert line.split()[-7:] == ["0", "5", "0", "-", "-", "-", "-"]


def test_an_option_that_does_not_exist_is_not_blamed_on_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    """Only texts may lack them."""
    with pytest.raises(SystemExit):
        main(["simulate", "10/s", "--arrivals", "5/s", "--json"])
    assert capsys.readouterr().err == (
        'error: --json is not expected: asgi-ratelimit simulate "10/s burst 5" --arrivals "20/s poisson"\n'
    )
