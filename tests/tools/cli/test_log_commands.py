"""The commands ``what-if`` and ``suggest``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asgi_ratelimit.tools.cli import main

LOG = """\
203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "POST /login HTTP/1.1" 200 5
203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "POST /login HTTP/1.1" 200 5
203.0.113.7 - - [10/Oct/2026:13:55:37 +0000] "POST /login HTTP/1.1" 401 5
198.51.100.9 - - [10/Oct/2026:13:55:38 +0000] "GET / HTTP/1.1" 200 5
203.0.113.7 - - [10/Oct/2026:13:55:39 +0000] "POST /login HTTP/1.1" 200 5
INFO: reloaded
198.51.100.9 - - [10/Oct/2026:13:57:36 +0000] "GET /items/7 HTTP/1.1" 200 5
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    """An access log."""
    (tmp_path / "access.log").write_text(LOG, "utf-8")
    return str(tmp_path / "access.log")


def test_what_if_writes_json(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With times since the epoch; pages of the docs show it as text. A log that is named twice is read once."""
    options = ["--quota", "3/hour", "--rule", "GET /items/{id} exempt", "--json", "--top", "1"]
    assert main(["what-if", log, log, *options]) == 0
    report = json.loads(capsys.readouterr().out)
    (rule,) = report.pop("rules")
    (worst,) = report.pop("worst")
    counts = {"requests": 6, "refused": 1, "unlimited": 1, "delayed": 0, "clients": 2, "refused_clients": 1}
    assert report == {**counts, "from": 1791640536.0, "to": 1791640656.0, "lines": 7, "unreadable": 1, "late": 0}
    assert (rule["name"], rule["quota"], rule["requests"], rule["refused_clients"]) == ("default", "3/hour", 5, 1)
    assert rule["top"] == [{"key": "203.0.113.7", "requests": 4, "refused": 1, "first": 1791640539.0}]
    assert worst == {"from": 1791640500.0, "seconds": 60, "requests": 5, "refused": 1}


def test_clients_may_be_hidden(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind hashes that differ in each run."""
    shown = []
    for _ in range(2):
        assert main(["what-if", log, "--quota", "3/hour", "--hide-keys", "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out)["rules"][0]["top"][0]["key"])
    assert len(set(shown)) == 2
    assert all(len(key) == 12 for key in shown)


def test_a_rule_without_requests_is_told(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It may be misspelt."""
    assert main(["what-if", log, "--rule", "/logn 5/minute"]) == 0
    assert "warning: no request is for /logn\n" in capsys.readouterr().err


def test_requests_in_flight_are_not_tried(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A log does not say how long requests take, so only the rates beside them are; a warning names the rules."""
    assert main(["what-if", log, "--rule", "/login 2/minute; 1 at once", "--rule", "/items/{id} 1 at once"]) == 0
    out, err = capsys.readouterr()
    assert "would be refused: 2 requests" in out
    (warning,) = [line for line in err.splitlines() if "/items" in line]
    assert warning.endswith("not limited, as a log does not say how long they take: /login and /items/{id}")


CONFIG = """
quota = "3/hour"

[[rules]]
name = "login"
path = "/login"
quota = "2/minute"
key = "header:X-Api-Key"
penalty = { block_for = "10 minutes" }

[[rules]]
path = "/items/{id}"
exempt = true
"""


def test_the_rules_may_be_those_of_a_file(
    log: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Under the keys of the log; nothing is logged of blocks that are none."""
    config = Path(log).with_name("limits.toml")
    config.write_text(CONFIG, "utf-8")
    assert main(["what-if", log, "--config", str(config), "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert {rule["name"]: (rule["requests"], rule["refused"]) for rule in report["rules"]} == {
        "default": (5, 0),
        "login": (4, 2),
    }
    assert report["unlimited"] == 1
    assert caplog.records == []
    assert err == "warning: 1 of 7 lines could not be read as requests\n"


def test_whole_seconds_are_told_where_they_matter(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """To limits of some seconds."""
    for quota, is_told in (("2/s", True), ("2/minute", False)):
        assert main(["what-if", log, "--quota", quota]) == 0
        assert ("the times of the log are whole seconds" in capsys.readouterr().err) == is_told


def test_suggest_proposes_limits(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the clients that each would refuse; a page of the docs shows them as text."""
    with Path(log).open("a") as file:
        file.write(LOG.splitlines()[0].replace("13:55:36", "13:58:36") + "\n")
    assert main(["suggest", log, "--json", "--kind", "fixed", "--refuse", "50%"]) == 0
    (suggested,) = json.loads(capsys.readouterr().out)
    assert (suggested["clients"], suggested["requests"]) == (2, 7)
    limits = [{"quota": "1/minute fixed", "refused_clients": 1, "refused_requests": 3}]
    minute = {"window": "minute", "use": {"0.5": 1, "0.9": 4, "0.99": 4, "1": 4}, "limits": limits}
    assert suggested["windows"][1] == minute


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["what-if", "LOG"], "nothing to try out: asgi-ratelimit what-if access.log"),
        (["what-if", "LOG", "--quota", "5/s", "--config", "a.toml"], "a file says all rules: remove --rule and --quo"),
        (["what-if", "LOG", "--quota", "5/s", "--rule", "login 5/s"], "'login 5/s' is not a path and a quota"),
        (["what-if", json.__file__, "--quota", "5/s"], "is a request, such as"),
        (["suggest", "LOG", "--refuse", "150%"], "--refuse must be a share of clients from 0% to below 100%"),
        (["suggest", "LOG", "--rule", "/login 5/minute"], "--rule of suggest is a path without a quota, not '/login 5"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_input_is_refused(arguments: list[str], error: str, log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, and a right example."""
    assert main([log if argument == "LOG" else argument for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert error in err
