"""Lines of real shapes, with made-up addresses: each is read right, or refused with a message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.tools.log_lines import (
    EXAMPLE,
    FORMATS,
    JSON_EXAMPLE,
    UNREADABLE,
    LoggedRequest,
    client_of,
    common_fields,
    fields_of,
    text_parser,
    time_us_of,
)
from asgi_ratelimit.tools.log_reading import LogReader

# 10 October 2026, 13:55:36 UTC, in microseconds.
AT = 1_791_640_536 * 1_000_000

CLIENT, PATH = "203.0.113.7", "/login"
TIME = "[10/Oct/2026:13:55:36 +0000]"
COMBINED = f'{TIME} "GET /login HTTP/1.1" 200 512 "-" "curl/8.1"'
GET = (AT, CLIENT, "GET", PATH)
LATER = (AT + 250_000, CLIENT, "GET", PATH)

SHAPE = re.compile(r"^# (.+)\n([=!]) (.+)\n(?:\+ (.+)\n)?(.+)$", re.MULTILINE)
# Of each line its name, whether it is read or refused and as what, the names of its fields, and the line.
SHAPES = SHAPE.findall(Path(__file__).with_name("log_lines.txt").read_text("utf-8"))


def read(folder: Path, lines: list[str], key: str = "client", **options: Any) -> list[LoggedRequest]:
    """The requests of a log with these lines."""
    (folder / "log").write_text("".join([f"{line}\n" for line in lines]), "utf-8")
    return list(LogReader([str(folder / "log")], key, **options).requests())


def test_there_are_many_shapes() -> None:
    """None is left out because it is written in another way."""
    assert len(SHAPES) == Path(__file__).with_name("log_lines.txt").read_text("utf-8").count("\n# ") >= 60


@pytest.mark.parametrize(("name", "kind", "expected", "fields", "line"), SHAPES, ids=[shape[0] for shape in SHAPES])
def test_a_line_is_read_or_refused(name: str, kind: str, expected: str, fields: str, line: str, tmp_path: Path) -> None:
    """With its time, client, method and path, as the server writes them; or the error shows it, and what to do."""
    if kind == "=":
        later, client, method, path = expected.split(" ", 3)
        request = (AT + int(later), client.replace("-", ""), method, path)
        assert read(tmp_path, [line], fields=fields_of(fields.split())) == [request]
        return
    with pytest.raises(ConfigurationError, match=expected) as raised:
        read(tmp_path, [line] * 3)
    assert repr(line[:200]) in str(raised.value)


@pytest.mark.parametrize(
    "line", ["[" * 16_000, " [" * 8000, f"{CLIENT} - -" + " [a" * 5000, "a " * 8000, '"' * 16_000, ":1" * 8000]
)
def test_no_line_keeps_a_pattern_busy(line: str, tmp_path: Path) -> None:
    """Whatever it is, and however often it is repeated; nor is the hint for such a log."""
    for fields in FORMATS:
        for each in (line, f"2026-10-10T13:55:36Z {line}", f"https {line}"):
            with pytest.raises(UNREADABLE):
                fields(each)
    with pytest.raises(ConfigurationError, match="none of the first"):
        read(tmp_path, [line] * 100)


def test_a_user_does_not_move_the_fields() -> None:
    """Who sends a name with brackets and quotes is still the client, at the time of the server."""
    line = f"{CLIENT} - x [11/Oct/2026:13:55:36 +0000] {COMBINED}"
    assert text_parser(common_fields, "client")(line) == GET


def test_the_key_may_be_the_user_or_everybody() -> None:
    """A request without a user has no key; one of several words may be another field."""
    line = f"{CLIENT} - ann {COMBINED}"
    assert [text_parser(common_fields, key)(line)[1] for key in ("user", "all")] == ["ann", "everybody"]
    assert [text_parser(common_fields, "user")(each)[1] for each in (EXAMPLE, f'{CLIENT} - "" {COMBINED}')] == ["", ""]
    with pytest.raises(ValueError, match="the user is not one word, but 'ann shop"):
        text_parser(common_fields, "user")(line.replace("ann", "ann shop.example"))


def test_the_key_may_be_a_field(tmp_path: Path) -> None:
    """A user that is missing, or null, is no reason to drop the request; a whole number is a key, a list is none."""
    users = ["ann", None, 7, ["x"], "10.0.0.1:80"]
    entries = [{"time": AT / 1e6 + number, "path": "/", "user": {"id": user}} for number, user in enumerate(users)]
    entries.append({"time": AT / 1e6 + 9, "path": "/"})
    keys = [key for _, key, _, _ in read(tmp_path, [json.dumps(entry) for entry in entries], "field:user.id")]
    assert keys == ["ann", "", "7", "10.0.0.1", ""]


def test_another_key_or_field_is_refused(tmp_path: Path) -> None:
    """The error shows a right one."""
    with pytest.raises(ConfigurationError, match=r"--key must be client, user or all .* not 'field:x': --key client"):
        read(tmp_path, [EXAMPLE], "field:x")
    with pytest.raises(ConfigurationError, match="--key must be client, all or field:NAME"):
        read(tmp_path, [JSON_EXAMPLE], "user")
    for text in ("time", "time=", "when=ts", "=x"):
        with pytest.raises(ConfigurationError, match=f"not {text!r}: time=ts"):
            fields_of([text])


def test_the_method_is_asked_for_where_rules_name_methods(tmp_path: Path) -> None:
    """Else a request without one is GET, also beside others that have one: a WebSocket's is null."""
    line = json.dumps({"time": AT / 1e6, "ip": CLIENT, "path": PATH})
    lines = [line.replace("}", f"{more}}}") for more in ("", ', "method": "GET"', ', "method": null')]
    assert [method for _, _, method, _ in read(tmp_path, lines)] == ["GET"] * 3
    with pytest.raises(ConfigurationError, match=r"its method is missing, .*: --field method=NAME"):
        read(tmp_path, [line], needs_method=True)
    with_method = line.replace("}", ', "verb": "GET"}')
    assert read(tmp_path, [with_method], needs_method=True, fields={"method": "verb"}) == [GET]


ODD: list[Mapping[str, Any]] = [
    *[{"method": method} for method in (["x"], 5, "M" * 99)],
    *[{"ts": time} for time in (float("inf"), 10**4000, True, {}, "9999-12-31T23:59:59-23:59")],
    *[{"client": client} for client in (["x"], 1.5, "k" * 1000, "\ud800")],
    *[{"path": path} for path in (None, 5, "login", "/" + "a" * 5000, {"a": "/"})],
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:30])
def test_odd_values_cost_their_own_line(odd: Mapping[str, Any], tmp_path: Path) -> None:
    """Other types, huge numbers and texts are unreadable; or a key, if it is only an odd text."""
    entry = {"ts": AT / 1e6, "client": CLIENT, "method": "GET", "path": PATH}
    requests = read(tmp_path, [json.dumps(entry), json.dumps({**entry, **odd})])
    assert len(requests) == 1 + (odd == {"client": "\ud800"})


def test_what_is_no_request_costs_its_own_line(tmp_path: Path) -> None:
    """Among the first lines as well, as where a server logs its start."""
    lines = ['{"a":' * 3000, "[]", "7", "starting", '{"level": "info", "time": 1791640536}', *[JSON_EXAMPLE] * 5]
    assert read(tmp_path, lines) == [LATER] * 5


@pytest.mark.parametrize(
    "value",
    [
        "2026-10-10 13:55:36.250",
        "2026-10-10T15:55:36,250+02:00",
        *[1_791_640_536.25, 1_791_640_536_250, 1_791_640_536_250_000, 1_791_640_536_250_000_000],
    ],
)
def test_times_of_all_kinds(value: object) -> None:
    """Texts, and numbers of seconds, milliseconds, microseconds and nanoseconds."""
    assert time_us_of(value) == AT + 250_000


def test_addresses_count_as_they_do_for_client_ip() -> None:
    """IPv6 addresses by their networks, without ports; all other keys as they are."""
    networks = ["2001:db8::1:2:3:4", "[2001:db8::7]", "[2001:db8::7]:52342"]
    assert {client_of(text) for text in networks} == {"2001:db8::/64"}
    assert {client_of(text) for text in (CLIENT, f"::ffff:{CLIENT}", f"{CLIENT}:52342")} == {CLIENT}
    assert [client_of(text) for text in ("fe80::1%eth0", "user:1:2", "7:8")] == ["fe80::/64", "user:1:2", "7:8"]
