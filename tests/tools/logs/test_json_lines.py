"""Logs of JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.tools.logs import LogReader, fields_of
from asgi_ratelimit.tools.logs.json_lines import EXAMPLE, json_parser
from asgi_ratelimit.tools.logs.times import time_us_of

AT = 1_791_640_536 * 1_000_000

TIMES = [
    ("2026-10-10T13:55:36Z", AT),
    ("2026-10-10 13:55:36.250", AT + 250_000),
    ("2026-10-10T15:55:36,250+02:00", AT + 250_000),
    ("10/Oct/2026:13:55:36 +0000", AT),
    (1_791_640_536, AT),
    (1_791_640_536.25, AT + 250_000),
    ("1791640536.250", AT + 250_000),
    (1_791_640_536_250, AT + 250_000),
    (1_791_640_536_250_000, AT + 250_000),
    (1_791_640_536_250_000_000, AT + 250_000),
]

CADDY = {"ts": 1791640536.25, "request": {"remote_ip": "203.0.113.7", "method": "PUT", "uri": "/a?x=1"}, "status": 200}
NGINX = {"time_iso8601": "2026-10-10T13:55:36+00:00", "remote_addr": "203.0.113.7", "request_uri": "/a%20b"}


@pytest.mark.parametrize(("value", "time_us"), TIMES)
def test_times_of_all_kinds(value: object, time_us: float) -> None:
    """Texts, and numbers of seconds, milliseconds, microseconds and nanoseconds."""
    assert time_us_of(value) == time_us


@pytest.mark.parametrize("value", [True, None, "yesterday", -1, float("nan"), 1e30, [], "10/Oct/26"])
def test_what_is_no_time(value: object) -> None:
    """Neither a time that is cut short."""
    with pytest.raises(ValueError):  # noqa: PT011  # some are raised by the standard library
        time_us_of(value)


@pytest.mark.parametrize(
    ("entry", "request_"),
    [
        (json.loads(EXAMPLE), (AT + 250_000, "203.0.113.7", "GET", "/login")),
        (CADDY, (AT + 250_000, "203.0.113.7", "PUT", "/a")),
        (NGINX, (AT, "203.0.113.7", "GET", "/a b")),
    ],
    ids=["example", "caddy", "nginx"],
)
def test_common_names_of_fields_are_known(entry: object, request_: tuple[object, ...]) -> None:
    """Also inside of objects; without a method, it is GET."""
    line = json.dumps(entry)
    assert json_parser([line], "client", {})(line) == request_


def test_other_names_are_options() -> None:
    """Of the time, the client, the method and the path; and the key may be any field."""
    line = json.dumps({"at": 1791640536, "who": {"ip": "h", "id": 7}, "verb": "PUT", "route": "/x"})
    fields = fields_of(["time=at", "client=who.ip", "method=verb", "path=route"])
    assert json_parser([line], "client", fields)(line) == (AT, "h", "PUT", "/x")
    assert json_parser([line], "field:who.id", fields)(line) == (AT, "7", "PUT", "/x")
    assert json_parser([line], "all", fields)(line) == (AT, "everybody", "PUT", "/x")


def test_a_request_came_before_its_answer() -> None:
    """As long as nginx and Caddy say, or another field does; other times are those of requests already."""
    nginx = {"msec": "1791640536.250", "request_time": "1.250", "remote_addr": "h", "uri": "/"}
    caddy = {"ts": 1791640536.25, "duration": 0.25, "ip": "h", "uri": "/"}
    traefik = {"StartUTC": "2026-10-10T13:55:36Z", "duration": 250, "ip": "h", "uri": "/"}
    for entry, fields, expected in (
        (nginx, {}, AT - 1_000_000),
        (caddy, {}, AT),
        (traefik, {}, AT),
        (traefik | {"took": 0.5}, fields_of(["duration=took"]), AT - 500_000),
    ):
        line = json.dumps(entry)
        request = json_parser([line], "client", fields)(line)
        assert request is not None
        assert request[0] == expected
    assert json_parser([json.dumps(nginx)], "client", {})(json.dumps(nginx | {"request_time": "-"})) is None


def test_a_request_without_the_key_has_none() -> None:
    """A user that is missing, or null, is no reason to drop the request."""
    line = json.dumps({"time": 1791640536, "path": "/", "user": "ann"})
    parse = json_parser([line], "field:user", {})
    assert [parse(text)[1] for text in (line, line.replace('"ann"', "null"), line.replace("user", "x"))] == [
        "ann",
        "",
        "",
    ]


@pytest.mark.parametrize("line", ["", "[]", "7", '{"time": "noon", "path": "/"}', '{"time": 1791640536}', "{"])
def test_any_other_line_is_unreadable(line: str) -> None:
    """It is not fatal."""
    assert json_parser([EXAMPLE], "client", {})(line) is None


def test_a_line_that_is_nested_too_deeply_is_unreadable(tmp_path: Path) -> None:
    """Among the first lines as well."""
    deep = '{"a":' * 100_000
    (tmp_path / "a").write_text("\n".join([deep, EXAMPLE, deep, ""]))
    reader = LogReader([str(tmp_path / "a")])
    assert len(list(reader.requests())) == 1
    assert reader.unreadable == 2


def test_the_first_lines_may_be_no_requests() -> None:
    """As where a server logs its start, too."""
    lines = ['{"level": "info", "ts": 1791640536, "msg": "serving"}', "starting", json.dumps(CADDY)]
    parse = json_parser(lines, "client", {})
    assert [parse(line) for line in lines] == [None, None, (AT + 250_000, "203.0.113.7", "PUT", "/a")]


def test_a_missing_field_is_named() -> None:
    """With those that there are, and the option that says which one it is."""
    with pytest.raises(ConfigurationError, match="no field for the time, but when, path: --field time=NAME"):
        json_parser(['{"when": 1, "path": "/"}'], "all", {})
    with pytest.raises(ConfigurationError, match=r"no field 'who.ip', but time, .*: --field client=NAME"):
        json_parser([EXAMPLE], "client", fields_of(["client=who.ip"]))
    with pytest.raises(ConfigurationError, match="--key must be client, all or field:NAME"):
        json_parser([EXAMPLE], "user", {})


@pytest.mark.parametrize("text", ["time", "time=", "when=ts", "=x"])
def test_an_option_that_is_no_field(text: str) -> None:
    """The error quotes it."""
    with pytest.raises(ConfigurationError, match=f"not {text!r}: time=ts"):
        fields_of([text])
