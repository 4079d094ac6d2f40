"""The command ``asgi-ratelimit``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from asgi_ratelimit.tools.cli import main

APP = """
from fastapi import APIRouter, Depends, FastAPI
from asgi_ratelimit import RateLimit, RateLimitMiddleware, Rule

router = APIRouter(prefix="/reports")

@router.get("/{number}", dependencies=[Depends(RateLimit("5/minute", name="reports"))])
def report(number: int) -> int:
    return number

app = FastAPI()
app.include_router(router)
app.add_middleware(RateLimitMiddleware, rules=[Rule("/health", None)])

@app.get("/health")
def health() -> str:
    return "fine"

@app.post("/login")
@app.put("/login")
def login() -> str:
    return "welcome"

@app.websocket("/ws")
async def ws() -> None: ...

def make():
    return app

class Holder:
    app = app

covered = RateLimitMiddleware(app, "1/s")
"""

TABLE = """\
METHODS    PATH               LIMITS
GET        /reports/{number}  reports: 5/minute
GET        /health            exempt
PUT        /login             NONE
POST       /login             NONE
WEBSOCKET  /ws                NONE
"""


@dataclass
class Run:
    """The result of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an app in it, which is not imported any more afterwards."""
    (tmp_path / "main.py").write_text(APP, "utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if name == "main":
            del sys.modules[name]


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run the command in that folder."""

    def run(*arguments: str) -> Run:
        code = main(arguments)
        return Run(code, *capsys.readouterr())

    return run


def test_routes_are_listed(run: Callable[..., Run]) -> None:
    """With their limits, or NONE."""
    assert run("routes", "main:app") == Run(0, TABLE, "")


def test_a_route_without_a_limit_fails_on_request(run: Callable[..., Run]) -> None:
    """The error names it; all routes are still listed."""
    assert run("routes", "main:app", "--require") == Run(1, TABLE, "error: without a limit: /login, /login, /ws\n")


def test_an_app_that_is_covered_passes(run: Callable[..., Run]) -> None:
    """The exit code is 0."""
    assert run("routes", "main:covered", "--require").code == 0


@pytest.mark.parametrize("where", [("main:Holder.app",), ("main:make", "--factory")], ids=["nested", "factory"])
def test_an_app_may_be_anywhere(
    where: tuple[str, ...], folder: Path, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an attribute of an attribute, made by a function, or in another folder."""
    monkeypatch.chdir(folder.parent)
    assert run("routes", *where, "--app-dir", str(folder)) == Run(0, TABLE, "")


@pytest.mark.parametrize("where", ["main", "main:", ":app", "nowhere:app", "main:nothing"])
def test_an_app_that_is_not_there(where: str, run: Callable[..., Run]) -> None:
    """The error quotes the argument, and shows a right one."""
    done = run("routes", where)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: no app at {where!r}: ")
    assert done.err.endswith("asgi-ratelimit routes main:app\n")


def test_it_is_run_as_a_module(folder: Path) -> None:
    """``python -m asgi_ratelimit`` causes no warnings."""
    command = (sys.executable, "-W", "error", "-m", "asgi_ratelimit", "routes", "main:app", "--require")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, TABLE)


def test_it_is_installed_as_a_command(folder: Path) -> None:
    """Under its own name."""
    command = (str(Path(sys.executable).with_name("asgi-ratelimit")), "routes", "main:app")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, TABLE)


def test_without_a_subcommand_it_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    """And exits with 2."""
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "asgi-ratelimit" in capsys.readouterr().err


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
