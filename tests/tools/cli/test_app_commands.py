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

def make_nothing(): ...

def wsgi(environ, start_response): ...

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


@pytest.mark.parametrize("where", ["main", "main:", ":app", "main:nothing"])
def test_an_app_that_is_not_there(where: str, run: Callable[..., Run]) -> None:
    """The error quotes the argument, and shows a right one."""
    done = run("routes", where)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: no app at {where!r}: ")
    assert ": asgi-ratelimit routes " in done.err


@pytest.mark.parametrize("command", ["routes", "check"])
def test_an_app_in_another_folder(
    command: str, folder: Path, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the option that says where it is."""
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "empty")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(folder)])
    done = run(command, "nowhere:app")
    mend = f"No module named 'nowhere': asgi-ratelimit {command} nowhere:app --app-dir src"
    assert (done.code, done.err) == (2, f"error: no app at 'nowhere:app': {mend}\n")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("\nraise RuntimeError('boom\\nat import')", "RuntimeError: boom (raising.py, line 2)"),
        ("raise SystemExit('bye')", "SystemExit: bye (raising.py, line 1)"),
        ("1 +", "SyntaxError: invalid syntax (raising.py, line 1)"),
    ],
)
def test_a_module_that_raises(statement: str, why: str, folder: Path, run: Callable[..., Run]) -> None:
    """The error is one line, which says what and where."""
    (folder / "raising.py").write_text(statement, "utf-8")
    done = run("routes", "raising:app")
    assert (done.code, done.err) == (2, f"error: no app at 'raising:app': {why}: asgi-ratelimit routes main:app\n")


@pytest.mark.parametrize(
    ("command", "what", "mend"),
    [
        (
            "routes",
            "app.py:app",
            "no app at 'app.py:app': it must be a module, not a file, and a colon and an attribute: asgi",
        ),
        ("what-if", "nosuch.log --rule=/x_5/s", "'nosuch.log': asgi-ratelimit what-if access.log --rule \"/login 5/m"),
        ("suggest", "nosuch.log", "error: No such file or directory: 'nosuch.log': asgi-ratelimit suggest access.log"),
        ("suggest", ".", "error: Is a directory: '.'"),
    ],
)
def test_what_is_no_app_and_no_file(command: str, what: str, mend: str, run: Callable[..., Run]) -> None:
    """The error shows how an app or a file is named."""
    done = run(command, *[each.replace("_", " ") for each in what.split()])
    assert (done.code, done.out) == (2, "")
    assert mend in done.err
    assert done.err.count("\n") == 1


def test_a_misspelt_command(capsys: pytest.CaptureFixture[str]) -> None:
    """All commands are listed."""
    with pytest.raises(SystemExit):
        main(["chek"])
    assert "invalid choice: 'chek' (choose from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (("main:make",), "'function' is not an ASGI app, which takes scope, receive and send; a function "),
        (("main:number",), "'int' is not an ASGI app"),
        (("main:wsgi",), "'function' is not an ASGI app, which takes scope, receive and send; "),
        (("main:number", "--factory"), "'int' is not an ASGI app"),
        (("main:make_nothing", "--factory"), "'NoneType' is not an ASGI app"),
    ],
)
@pytest.mark.parametrize("command", ["routes", "check"])
def test_what_is_no_app_is_an_error(command: str, where: tuple[str, ...], why: str, run: Callable[..., Run]) -> None:
    """Else nothing would be checked, and a check of nothing passes."""
    done = run(command, *where)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: no app at {where[0]!r}: {why}")
    assert done.err.count("\n") == 1


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
    error = "error: a command is missing, and asgi-ratelimit --help lists them all: asgi-ratelimit routes main:app\n"
    assert capsys.readouterr() == ("", error)


def test_the_version_is_that_of_the_package(run: Callable[..., Run]) -> None:
    """As it is installed."""
    assert run("--version") == Run(0, f"asgi-ratelimit-pacer {version('asgi-ratelimit-pacer')}\n", "")
    assert asgi_ratelimit.__version__ == version("asgi-ratelimit-pacer")


def test_help_shows_examples_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """With one percent sign."""
    with pytest.raises(SystemExit):
        main(["suggest", "--help"])
    assert capsys.readouterr().out.endswith("example: asgi-ratelimit suggest access.log --refuse 1%\n")


CHECKED = """\
default: 100/minute
At most 100 at once, earned back at 100 per minute; in any minute up to 200 may pass.

/login: 200/minute
At most 200 at once, earned back at 200 per minute; in any minute up to 400 may pass.

/reports: 3/second; 500/hour
At most 3 at once, earned back at 3 per second; in any second up to 6 may pass.
At most 500 at once, earned back at 500 per hour; in any hour up to 1000 may pass.

/by: by plan

/nowhere: 5/second
At most 5 at once, earned back at 5 per second; in any second up to 10 may pass.

finding: Rule('/nowhere', '5/s', name='/nowhere') matches no route of the app: is its path complete?
finding: /reports: a cost of 5 never passes '3/second', which gives at most 3 at once
"""

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
    assert done.out == CHECKED


def test_check_is_content(run: Callable[..., Run]) -> None:
    """With exit code 0, for an app and for quotas."""
    assert run("check", "main:app").out.endswith("\nno findings\n")
    done = run("check", "10/s burst 20; 1000/hour")
    assert (done.code, done.out.splitlines()[-1]) == (0, "no findings")


UNNAMED = """
from fastapi import Depends, FastAPI
from asgi_ratelimit import RateLimit

app = FastAPI()
several = RateLimit("1/hour")

@app.get("/search", dependencies=[Depends(RateLimit("5/minute"))])
def search() -> None: ...

@app.post("/a", dependencies=[Depends(several)])
@app.post("/b", dependencies=[Depends(several)])
def both() -> None: ...
"""


def test_check_says_the_names_of_limits_without_one(folder: Path, run: Callable[..., Run]) -> None:
    """Those after their routes; one that has several routes needs a name, and is a finding."""
    (folder / "main.py").write_text(UNNAMED, "utf-8")
    done = run("check", "main:app")
    assert done.code == 1
    assert "GET /search: 5/minute\n" in done.out
    assert (
        """finding: RateLimit("1/hour") is used on several routes, such as 'POST /b' and 'POST /a', and""" in done.out
    )


def test_messages_are_shown_and_explained(folder: Path, run: Callable[..., Run]) -> None:
    """Those of a WebSocket, also where its handshake is exempt."""
    rule = "asgi_ratelimit.Rule('/ws', None, messages='5/s burst 2', name='ws')"
    limited = f"app.add_middleware(RateLimitMiddleware, rules=[{rule}])"
    (folder / "main.py").write_text(f"{APP}\nimport asgi_ratelimit\n{limited}\n", "utf-8")
    assert "WEBSOCKET  /ws                ws: messages 5/second burst 2\n" in run("routes", "main:app").out
    checked = run("check", "main:app").out
    assert "ws: messages 5/second burst 2\nMessages: At most 2 at once, earned back at 5 per second; " in checked


def test_check_explains_quotas(run: Callable[..., Run]) -> None:
    """And says what never passes."""
    done = run("check", "100/minute; 9000/hour fixed; 2/s", "--cost", "3")
    assert done.code == 1
    assert done.out.splitlines()[4:] == [
        "finding: a cost of 3 never passes '2/second', which gives at most 2 at once",
    ]


def test_check_reads_files_of_limits(folder: Path, run: Callable[..., Run]) -> None:
    """As the middleware reads them, with the same errors."""
    (folder / "limits.toml").write_text('quota = "1/s"\n[[rules]]\npath = "/a"\nquota = "2/s"\ncost = 3\n', "utf-8")
    done = run("check", "limits.toml")
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "finding: default /a: a cost of 3 never passes '2/second', which gives at most 2 at once",
    )
    (folder / "limits.toml").write_text('quota = "1/fortnight"\n', "utf-8")
    done = run("check", "limits.toml")
    assert (done.code, "limits.toml" in done.err) == (2, True)


def test_check_explains_each_tier(folder: Path, run: Callable[..., Run]) -> None:
    """Of a file of limits, in which a function names the tier of a request."""
    tiers = (
        '[tiers.plan]\nfunction = "tests.inbound.config.limits_of:plan_of"\nfree = "1/s"\npro = "9/s fixed; 99/day"\n'
    )
    (folder / "limits.toml").write_text(f'tier = "plan"\n{tiers}', "utf-8")
    lines = run("check", "limits.toml").out.splitlines()
    assert lines[0] == "default: by tier plan"
    assert [line.partition(": ")[0] for line in lines[1:4]] == ["free", "pro", "pro"]


def test_both_commands_write_json(run: Callable[..., Run]) -> None:
    """For other programs."""
    routes = json.loads(run("routes", "main:app", "--json").out)
    assert routes[0] == {
        "path": "/reports/{number}",
        "methods": ["GET"],
        "is_websocket": False,
        "limits": ["reports: 5/minute"],
        "is_exempt": False,
        "without_key": [],
    }
    checked = json.loads(run("check", "2/s", "--cost", "3", "--json").out)
    assert [limit["quotas"] for limit in checked["limits"]] == ["2/second"]
    assert len(checked["findings"]) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["10/fortnight"], "'fortnight' is not a unit of time"),
        (["10/s", "--cost", "0"], "cost must be"),
        (["nowhere:app"], "no app at 'nowhere:app'"),
    ],
)
def test_check_says_what_it_cannot_check(arguments: list[str], error: str, run: Callable[..., Run]) -> None:
    """With exit code 2."""
    done = run("check", *arguments)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
