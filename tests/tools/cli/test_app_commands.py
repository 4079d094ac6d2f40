"""The commands ``routes`` and ``check``, and how the command is started."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

import asgi_ratelimit
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

number = 7

class Holder:
    app = app

unbuilt = FastAPI(middleware=[(lambda app: {}["SECRET"], (), {})])
once = FastAPI(middleware=[(lambda app, names=["a"]: names.pop() and RateLimitMiddleware(app, "9/s"), (), {})])
mistaken = FastAPI(middleware=[(RateLimitMiddleware, (), {"quota": "5/mintue"})])
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
    yield tmp_path
    sys.modules.pop("main", None)


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run the command in that folder."""

    def run(*arguments: str) -> Run:
        code = main(arguments)
        return Run(code, *capsys.readouterr())

    return run


def test_routes_are_listed(run: Callable[..., Run]) -> None:
    """With their limits, or NONE, which is an error on request; and as JSON."""
    assert run("routes", "main:app") == Run(0, TABLE, "")
    errors = "".join([f"error: without a limit: {path}\n" for path in ("/login", "/login", "/ws")])
    assert run("routes", "main:app", "--require") == Run(1, TABLE, errors)
    report = {"path": "/reports/{number}", "methods": ["GET"], "limits": ["reports: 5/minute"]}
    rest = {"is_websocket": False, "is_exempt": False, "without_key": []}
    assert json.loads(run("routes", "main:app", "--json").out)[0] == report | rest


@pytest.mark.parametrize("where", [("main:Holder.app",), ("main:make", "--factory")], ids=["nested", "factory"])
def test_an_app_may_be_anywhere(
    where: tuple[str, ...], folder: Path, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an attribute of an attribute, made by a function, or in another folder."""
    monkeypatch.chdir(folder.parent)
    assert run("routes", *where, "--app-dir", str(folder)) == Run(0, TABLE, "")


RAISING = "\nraise RuntimeError('boom\\nat import')"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("main", "it must be a module, not a file, and a colon and an attribute"),
        ("main.py", "it must be a module, not a file, and a colon and an attribute"),
        ("app.py:app", "it must be a module, not a file, and a colon and an attribute"),
        ("main:nothing", "module 'main' has no attribute 'nothing'"),
        ("nowhere:app", "No module named 'nowhere': asgi-ratelimit COMMAND nowhere:app --app-dir src"),
        ("raising:app", "RuntimeError: boom (raising.py, line 2)"),
        ("broken:app", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("main:make", "'function' is not an ASGI app, which takes scope, receive and send; a function that makes one"),
        ("main:number --factory", "'int' is not an ASGI app"),
        ("main:unbuilt", "KeyError: 'SECRET' (main.py, line "),
    ],
)
@pytest.mark.parametrize("command", ["routes", "check"])
def test_what_is_no_app_is_an_error(command: str, where: str, why: str, folder: Path, run: Callable[..., Run]) -> None:
    """Of one line, with a right command: else nothing would be checked, and a check of nothing passes."""
    for name, text in (("raising", RAISING), ("broken", "1 +")):
        (folder / f"{name}.py").write_text(text, "utf-8")
    done = run(command, *where.split())
    assert (done.code, done.out) == (2, "")
    start = f"error: no app at {where.split()[0]!r}: {why.replace('COMMAND', command)}"
    assert done.err[: len(start)] == start
    assert f": asgi-ratelimit {command} " in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("what-if nosuch.log --rule=/x_5/s", "'nosuch.log': asgi-ratelimit what-if access.log --quota 1"),
        ("check 10/fortnight", "'fortnight' is not a unit of time"),
        ("what-if - --quota=1/s --top=-1", "--top must be a whole number of at least 0, not -1: --top 10"),
        ("routes main:mistaken", "error: '5/mintue': 'mintue' is not a unit of time"),
        ("check wrong.toml", "wrong.toml"),
        ("check wrong.toml --cost 30", "--cost is for quotas as text"),
    ],
)
def test_wrong_arguments_are_an_error(arguments: str, error: str, folder: Path, run: Callable[..., Run]) -> None:
    """It shows a right one."""
    (folder / "wrong.toml").write_text('quota = "1/fortnight"\n', "utf-8")
    done = run(*[each.replace("_", " ") for each in arguments.split()])
    assert (done.code, done.out) == (2, "")
    assert error in done.err


def test_it_is_run_as_a_module(folder: Path) -> None:
    """``python -m asgi_ratelimit`` causes no warnings."""
    command = (sys.executable, "-W", "error", "-m", "asgi_ratelimit", "routes", "main:app", "--require")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, TABLE)


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is installed."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"asgi-ratelimit-pacer {asgi_ratelimit.__version__}\n")
    assert asgi_ratelimit.__version__ == version("asgi-ratelimit-pacer")


MISTAKEN = """
from fastapi import FastAPI
from asgi_ratelimit import RateLimitMiddleware, Rule

def plan(request):
    return "5/s"

app = FastAPI()
for path in ("/login", "/reports", "/by"):
    app.post(path)(lambda: "fine")
rules = [
    Rule("/login", "200/minute", name="/login"),
    Rule("/reports", "3/second; 500/hour", name="/reports", cost=5),
    Rule("/by", plan, name="/by"),
    Rule("/nowhere", "5/s", name="/nowhere"),
]
app.add_middleware(RateLimitMiddleware, quota="100/minute", rules=rules)
"""


def test_check_finds_what_is_wrong_with_an_app(folder: Path, run: Callable[..., Run]) -> None:
    """Rules that match nothing, and costs that never pass; all limits are explained."""
    (folder / "main.py").write_text(MISTAKEN, "utf-8")
    with warnings.catch_warnings(action="ignore"):
        done = run("check", "main:app")
    assert done.code == 1
    assert "\n/reports: 3/second; 500/hour\nAt most 3 at once, earned back at 3 per second; in any second" in done.out
    assert "\n/by: by plan\n" in done.out
    unmatched, too_dear = done.out.splitlines()[-2:]
    assert unmatched.startswith("finding: Rule('/nowhere', '5/s', name='/nowhere') matches no route of the app: ")
    assert too_dear == "finding: /reports: a cost of 5 never passes '3/second', which gives at most 3 at once"


NAMELESS = """
from fastapi import Depends, FastAPI
from asgi_ratelimit import RateLimit

app = FastAPI(dependencies=[Depends(RateLimit("9/minute"))])
for path in ("/a", "/b"):
    app.get(path, dependencies=[Depends(RateLimit(f"{ord(path[1])}/minute", name="x"))])(lambda: "fine")
"""


@pytest.mark.parametrize("command", ["routes main:app --require", "check main:app"])
def test_limits_that_need_another_name(command: str, folder: Path, run: Callable[..., Run]) -> None:
    """Both commands tell what the app would raise at its first request."""
    (folder / "main.py").write_text(NAMELESS, "utf-8")
    done = run(*command.split())
    assert done.code == 1
    assert "'GET /a' and 'GET /b', and needs a name: RateLimit(" in done.out + done.err
    assert "two limits named 'x' share a store" in done.out + done.err


def test_check_is_content(run: Callable[..., Run]) -> None:
    """With an app, also one whose middleware can be built once; and with a cost of all that quotas give at once."""
    assert run("check", "main:app").out.endswith("\nno findings\n")
    assert run("check", "main:once").out.endswith("\nno findings\n")
    done = run("check", "10/s burst 20; 1000/hour; 3 at once", "--cost", "20")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no findings")
    checked = json.loads(run("check", "2/s", "--cost", "3", "--json").out)
    assert [limit["quotas"] for limit in checked["limits"]] == ["2/second"]
    assert checked["findings"] == ["a cost of 3 never passes '2/second', which gives at most 2 at once"]


TIERS = """
tier = "plan"
[tiers.plan]
function = "tests.inbound.config.limits_of:plan_of"
free = "1/s"
pro = "9/s fixed; 99/day"
[[rules]]
path = "/a"
quota = "2/s"
cost = 3
"""


def test_check_reads_files_of_limits(folder: Path, run: Callable[..., Run]) -> None:
    """As the middleware reads them; each tier is explained."""
    (folder / "limits.toml").write_text(TIERS, "utf-8")
    done = run("check", "limits.toml")
    lines = done.out.splitlines()
    assert [line.partition(": ")[0] for line in lines[:4]] == ["default", "free", "pro", "pro"]
    assert (done.code, lines[-1]) == (
        1,
        "finding: default /a: a cost of 3 never passes '2/second', which gives at most 2 at once",
    )
    (folder / "limits.toml").write_text('headers = "both"', "utf-8")
    assert run("check", "limits.toml") == Run(1, 'finding: no limit: quota = "100/minute"\n', "")


def test_check_is_content_with_the_example(run: Callable[..., Run]) -> None:
    """No client of the file of limits in the examples evades them."""
    done = run("check", str(Path(__file__).parents[3] / "examples" / "limits.toml"))
    assert (done.code, done.out.splitlines()[-1]) == (0, "no findings")
