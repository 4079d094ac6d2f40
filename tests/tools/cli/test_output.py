"""What commands print, in a terminal and elsewhere."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from asgi_ratelimit.tools.cli import main

LOG = '203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" 200 5\n' * 5


def test_nothing_that_is_read_controls_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither clients, paths and names of fields, nor values, in tables, errors and JSON."""
    evil = "\x1b]0;pwned\x07\x9b2J\u202e\ud800"
    entry = {"time": 1791640536, "client": evil, "path": "/"}
    logs = {
        "client": [entry] * 5,
        "field": [{evil: 1, "time": 1, "path": "/"}],
        "value": [{**entry, "time": evil}],
        "method": [{**entry, "method": evil}],
    }
    for name, entries in logs.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, entries)))
        for more in ([], ["--json"]):
            assert main(["what-if", str(tmp_path / name), "--rule", "/ 2/minute", *more]) in (0, 2)
    (tmp_path / "text").write_text(f"{evil[:-1]} - - {LOG}")
    main(["what-if", str(tmp_path / "text"), "--rule", "/ 2/minute"])
    out, err = capsys.readouterr()
    assert "pwned" in out
    assert "pwned" in err
    assert all(each == "\n" or each.isprintable() for each in out + err)


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    """As ``head``."""
    (tmp_path / "log").write_text(LOG)
    command = (sys.executable, "-m", "asgi_ratelimit", "what-if", str(tmp_path / "log"), "--quota", "2/minute")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_ctrl_c_ends_a_replay() -> None:
    """At once, and without a traceback."""
    code = "import signal; signal.signal(2, signal.default_int_handler); from asgi_ratelimit.tools.cli import main"
    command = (sys.executable, "-c", f"{code}; raise SystemExit(main())", "what-if", "-", "--quota", "2/minute")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(3000 * LOG.encode())  # more than a pipe holds: the replay has begun
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=30) == 130
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "arguments", ["", "nonsense", "peek", "what-if a --rule / 5/minute", "set login 203.0.113.1 100/hour"]
)
def test_arguments_that_cannot_be_parsed(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, which ends with a right command; exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert ": asgi-ratelimit " in err


@pytest.mark.parametrize("command", ["check", "history", "peek", "set", "suggest", "buckets", "what-if"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With an example."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"example: asgi-ratelimit {command}" in capsys.readouterr().out
