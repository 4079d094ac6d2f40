"""The command ``asgi-ratelimit``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asgi_ratelimit.cli import main

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
"""

TABLE = """\
METHODS    PATH               LIMITS
GET        /reports/{number}  reports: 5/minute
GET        /health            exempt
PUT        /login             NONE
POST       /login             NONE
WEBSOCKET  /ws                NONE
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an app in it."""
    (tmp_path / "main.py").write_text(APP, "utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as it is run from a shell, in that folder."""
    command = (sys.executable, "-W", "error", "-m", "asgi_ratelimit", *arguments)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_routes_are_listed(folder: Path) -> None:
    """With their limits, and what has none."""
    done = run(folder, "routes", "main:app")
    assert (done.returncode, done.stdout, done.stderr) == (0, TABLE, "")


def test_a_route_without_a_limit_fails_on_request(folder: Path) -> None:
    """It is named; all others are still listed."""
    done = run(folder, "routes", "main:app", "--require")
    assert (done.returncode, done.stdout) == (1, TABLE)
    assert done.stderr == "error: without a limit: /login, /login, /ws\n"


def test_an_app_that_is_covered_passes(folder: Path) -> None:
    """In a pipeline, say."""
    (folder / "covered.py").write_text(
        "from main import *\nfrom asgi_ratelimit import *\napp = RateLimitMiddleware(app, '1/s')"
    )
    assert run(folder, "routes", "covered:app", "--require").returncode == 0


@pytest.mark.parametrize("where", [("main:Holder.app",), ("main:make", "--factory")], ids=["nested", "factory"])
def test_an_app_may_be_anywhere(folder: Path, where: tuple[str, ...]) -> None:
    """In an attribute of an attribute, or made by a function; in another folder."""
    done = run(folder.parent, "routes", *where, "--app-dir", str(folder))
    assert (done.returncode, done.stdout) == (0, TABLE)


@pytest.mark.parametrize("where", ["main", "main:", ":app", "nowhere:app", "main:nothing"])
def test_an_app_that_is_not_there(folder: Path, where: str) -> None:
    """The error quotes what was asked for, and shows a right one."""
    done = run(folder, "routes", where)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: no app at {where!r}: ")
    assert done.stderr.endswith("asgi-ratelimit routes main:app\n")


def test_it_is_installed_as_a_command(folder: Path) -> None:
    """Under its own name."""
    command = (str(Path(sys.executable).with_name("asgi-ratelimit")), "routes", "main:app")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, TABLE)


def test_without_a_verb_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """And fails."""
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "asgi-ratelimit" in capsys.readouterr().err
