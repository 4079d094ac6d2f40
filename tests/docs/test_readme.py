"""The README is true, in this checkout and for the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import httpx
import pytest

from benchmarks.reporting.report import RESULTS
from tests.support.server import ROOT, Uvicorn

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
APP = PROGRAMS[0]
(REFUSAL,) = (text for language, text in BLOCKS if language == "http")

START = """
import asgi_ratelimit

app.build_middleware_stack()
print(asgi_ratelimit.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as for a release."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def test_the_app_limits_on_a_real_server(tmp_path: Path) -> None:
    """Five requests in a minute pass, and the sixth gets the answer in the README."""
    (tmp_path / "app.py").write_text(APP, "utf-8")
    with Uvicorn("app:app", app_dir=tmp_path) as server, httpx.Client(trust_env=False) as client:
        answers = [client.get(server.url) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert without_seconds(shown(answers[-1])) == without_seconds(REFUSAL)


def test_the_results_of_the_benchmarks_are_shown() -> None:
    """The tables are those of the last whole run, and their picture exists."""
    _, short = (RESULTS / "results.md").read_text("utf-8").split("## In short\n\n")
    assert short.partition("\n\n##")[0] in README
    (picture,) = re.findall(r"!\[.*\]\((benchmarks/.*?)\)", README)
    assert (ROOT / picture).is_file()


@pytest.mark.parametrize("program", PROGRAMS, ids=range(1, len(PROGRAMS) + 1))
def test_every_program_runs(program: str) -> None:
    """Each block of Python is complete, and raises no warning."""
    run(sys.executable, "-W", "error", "-c", program)


def test_the_wheel_is_complete(wheel: Path) -> None:
    """It holds the script, the marker for types, and only files of the package."""
    names = set(ZipFile(wheel).namelist())
    package = ROOT / "asgi_ratelimit"
    data = ["stores/redis/rate_limit.lua", "keys/cdn_networks.toml", "metrics/grafana.json", "py.typed"]
    assets = (package / "dashboard" / "assets").iterdir()
    files = [*package.rglob("*.py"), *[package / name for name in data], *assets]
    assert {name for name in names if ".dist-info/" not in name} == {str(file.relative_to(ROOT)) for file in files}
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_needs_nothing_else(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment, with only the dependencies of the wheel, the app starts."""
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", str(wheel))
    where = run(python, "-I", "-W", "error", "-c", APP + START)
    assert Path(where).is_relative_to(tmp_path)


def run(*command: str) -> str:
    """Run a command, which must succeed, and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shown(answer: httpx.Response) -> str:
    """An answer in the format of the README: the start line, the same headers, the body."""
    names = re.findall(r"^([\w-]+): ", REFUSAL, re.MULTILINE)
    headers = [f"{name}: {answer.headers.get(name)}" for name in names]
    start = f"{answer.http_version} {answer.status_code} {answer.reason_phrase}"
    return "\n".join([start, *headers, "", answer.text, ""])


def without_seconds(text: str) -> str:
    """A text without the times that depend on the duration of the requests."""
    return re.sub(r"(t=|retry-after: )\d+", r"\1...", text)
