"""Lines of real shapes, with made-up addresses: each is read right, or refused with a message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    json_parser,
    text_parser,
    time_us_of,
)
from asgi_ratelimit.tools.log_reading import LogReader

AT = 1_791_640_536 * 1_000_000
"""10 October 2026, 13:55:36 UTC, in microseconds."""

CLIENT, PATH = "203.0.113.7", "/login"
TIME = "[10/Oct/2026:13:55:36 +0000]"
REST = '"GET /login HTTP/1.1" 200 512'
COMBINED = f'{TIME} {REST} "-" "curl/8.1"'
GET = (AT, CLIENT, "GET", PATH)
LATER = (AT + 250_000, CLIENT, "GET", PATH)

ALB = (
    f"https 2026-10-10T13:55:36.900000Z app/shop/50dc6c495c0c9188 {CLIENT}:2817 10.0.0.1:80 0.001 0.3 0.000 200 200 34 "
    '366 "GET https://shop.example:443/login?x=1 HTTP/1.1" "curl/8 (\\"x\\")" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 '
    'arn:aws:elasticloadbalancing:eu-1:1:targetgroup/web/7 "Root=1-5833-36d2" "shop.example" "arn:aws:acm" '
    '0 2026-10-10T13:55:36.250000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"'
)
"""A line of a load balancer; its first time is that of the answer."""

TEXTS: dict[str, tuple[str, LoggedRequest]] = {
    "common": (EXAMPLE, GET),
    "combined": (f"{CLIENT} - - {COMBINED}", GET),
    "a user": (f"{CLIENT} - ann {COMBINED}", GET),
    "a user of two words": (f"{CLIENT} - ann lee {COMBINED}", GET),
    "a user in quotes": (f'{CLIENT} - "" {COMBINED}', GET),
    "a zone ahead": (f"{CLIENT} - - [10/Oct/2026:15:55:36 +0200] {REST}", GET),
    "a zone behind": (f"{CLIENT} - - [10/Oct/2026:09:25:36 -0430] {REST}", GET),
    "apache with milliseconds": (f"{CLIENT} - - [10/Oct/2026:13:55:36.250 +0000] {REST}", LATER),
    "apache with a port of the client": (f"{CLIENT}:52342 - - {COMBINED}", GET),
    "apache with %v:%p": (f"www.shop.example:443 {CLIENT} - - {COMBINED}", GET),
    "apache with %v": (f"shop.example {CLIENT} - - {COMBINED}", GET),
    "apache with the name of a client": (f"host.isp.example - - {COMBINED}", (AT, "host.isp.example", "GET", PATH)),
    "apache without a client": (f"- - - {COMBINED}", (AT, "", "GET", PATH)),
    "ipv6": (f"2001:db8::1 - - {COMBINED}", (AT, "2001:db8::/64", "GET", PATH)),
    "ipv6 in brackets with a port": (f"[2001:db8::1]:52342 - - {COMBINED}", (AT, "2001:db8::/64", "GET", PATH)),
    "ipv4 in ipv6": (f"::ffff:203.0.113.7 - - {COMBINED}", GET),
    "nginx with an iso time": (f"{CLIENT} - - [2026-10-10T13:55:36+00:00] {REST}", GET),
    "nginx with msec": (f"{CLIENT} - - [1791640536.250] {REST}", LATER),
    "nginx in docker": (f'{CLIENT} - - {COMBINED} "198.51.100.9"', GET),
    "ingress-nginx": (f"{CLIENT} - - {COMBINED} 77 0.003 [shop-web-80] [] 10.0.0.9:80 18 0.003 200 8f1e", GET),
    "traefik": (f'{CLIENT} - - {COMBINED} 1 "web@docker" "http://10.0.0.9:80" 12ms', GET),
    "hypercorn": (f'{CLIENT}:52342 - - {TIME} "GET /login 1.1" 200 5 "-" "curl/8"', GET),
    "http/0.9": (f'{CLIENT} - - {TIME} "GET /login" 200 5', GET),
    "an escaped path": (
        f'{CLIENT} - - {TIME} "POST /a%20b?x=1 HTTP/2.0" 429 0',
        (AT, CLIENT, "POST", "/a b"),
    ),
    "an absolute target": (f'{CLIENT} - - {TIME} "GET http://shop.example/login?x HTTP/1.1" 200 0', GET),
    "a quote in the target": (
        f'{CLIENT} - - {TIME} "GET /a\\"b HTTP/1.1" 200 0 "-" "-"',
        (AT, CLIENT, "GET", '/a\\"b'),
    ),
    "all of the server": (f'{CLIENT} - - {TIME} "OPTIONS * HTTP/1.1" 200 0', (AT, CLIENT, "OPTIONS", "*")),
    "uvicorn behind docker logs -t": (
        f'2026-10-10T13:55:36.250000001Z INFO:     {CLIENT}:52342 - "GET /login HTTP/1.1" 200 OK',
        LATER,
    ),
    "uvicorn with asctime": (
        f'2026-10-10 13:55:36,250 - uvicorn.access - INFO - {CLIENT}:52342 - "GET /login?x=1 HTTP/1.1" 200',
        LATER,
    ),
    "gunicorn with workers of uvicorn": (
        f'[2026-10-10 13:55:36 +0000] [9] [INFO] {CLIENT}:0 - "GET /login HTTP/1.1" 200',
        GET,
    ),
    "uvicorn with ipv6": (
        '2026-10-10T13:55:36Z INFO:     2001:db8::1:52342 - "GET /login HTTP/1.1" 200 OK',
        (AT, "2001:db8::/64", "GET", PATH),
    ),
    "aws alb": (ALB, LATER),
}

CADDY = {
    "level": "info",
    "ts": 1791640536.5,
    "request": {"remote_ip": "10.0.0.5", "client_ip": CLIENT, "method": "GET", "uri": "/login?x=1"},
    "duration": 0.25,
    "status": 200,
}
TRAEFIK = {
    "ClientHost": CLIENT,
    "Duration": 300_000_000,
    "RequestMethod": "GET",
    "RequestPath": PATH,
    "StartLocal": "2026-10-10T15:55:36.25+02:00",
    "StartUTC": "2026-10-10T13:55:36.25Z",
    "time": "2026-10-10T13:55:36Z",
}
GOOGLE = {
    "httpRequest": {
        "requestMethod": "GET",
        "requestUrl": "https://shop.example/login?x=1",
        "remoteIp": CLIENT,
        "latency": "0.3s",
    },
    "timestamp": "2026-10-10T13:55:36.250000Z",
}

OBJECTS: dict[str, tuple[dict[str, Any], str, LoggedRequest]] = {
    "example": (json.loads(JSON_EXAMPLE), "", LATER),
    "caddy": (CADDY, "", LATER),
    "an older caddy": ({**CADDY, "request": {**CADDY["request"], "client_ip": None, "remote_ip": CLIENT}}, "", LATER),  # type: ignore[dict-item]
    "caddy with durations as text": ({**CADDY, "duration": "250ms"}, "", LATER),
    "caddy with iso times": ({**CADDY, "ts": "2026-10-10T13:55:36.500Z"}, "", LATER),
    "traefik": (TRAEFIK, "", LATER),
    "google": (GOOGLE, "", LATER),
    "nginx": (
        {
            "msec": "1791640536.500",
            "request_time": "0.250",
            "remote_addr": CLIENT,
            "request": "GET /login?x=1 HTTP/1.1",
        },
        "",
        LATER,
    ),
    "nginx with uri and request_uri": (
        {"time_iso8601": "2026-10-10T13:55:36+00:00", "remote_addr": CLIENT, "uri": "/index.php", "request_uri": PATH},
        "",
        GET,
    ),
    "gunicorn": (
        {"remote_address": CLIENT, "date": TIME, "method": "GET", "url_path": PATH},
        "client=remote_address path=url_path",
        GET,
    ),
    "a request line by name": (
        {"time": AT / 1e6, "ip": CLIENT, "line": "PUT /login HTTP/1.1"},
        "path=line",
        (AT, CLIENT, "PUT", PATH),
    ),
    "names of its own": (
        {"at": 1791640536, "who": {"ip": CLIENT}, "verb": "PUT", "route": PATH},
        "time=at client=who.ip method=verb path=route",
        (AT, CLIENT, "PUT", PATH),
    ),
    "names with dots": ({"@timestamp": AT / 1e3, "client_ip": CLIENT, "http.url": PATH}, "", GET),
    "a duration by name": ({"time": AT / 1e6 + 0.5, "ip": CLIENT, "path": PATH, "took": 0.25}, "duration=took", LATER),
    "a client with its port": ({"time": AT / 1e6, "client_addr": f"{CLIENT}:52342", "path": PATH}, "", GET),
    "no client": ({"time": AT / 1e6, "client": "-", "path": PATH}, "", (AT, "", "GET", PATH)),
}

REFUSED: dict[str, tuple[str, str]] = {
    "uvicorn as it is": (
        f'INFO:     {CLIENT}:52342 - "GET /login HTTP/1.1" 200 OK',
        "uvicorn logs no times, but docker logs",
    ),
    "workers of uvicorn": (f'{CLIENT}:52342 - "GET /login HTTP/1.1" 200', "uvicorn logs no times"),
    "syslog": (f"Oct 10 13:55:36 web1 nginx: {CLIENT} - - {COMBINED}", r"'Oct 10 13:55:36 web1 nginx: ' stands before"),
    "syslog before the tenth": (
        f"Oct  9 13:55:36 web1 nginx: {CLIENT} - - {COMBINED}",
        r"sed -E 's/\^\(\[\^ \]\+ \+\)\{5\}//'",
    ),
    "kubectl --prefix": (f"[pod/web-7c/nginx] {CLIENT} - - {COMBINED}", r"\[pod/web-7c/nginx\] ' stands before"),
    "docker logs -t": (f"2026-10-10T13:55:36.356Z {CLIENT} - - {COMBINED}", "36.356Z ' stands before"),
    "docker compose": (f"web-1  | {CLIENT} - - {COMBINED}", r"'web-1  \| ' stands before"),
    "a file of containerd": (f"2026-10-10T13:55:36.3Z stdout F {CLIENT} - - {COMBINED}", "stdout .*' stands before"),
    "json behind a time": (f"2026-10-10T13:55:36.3Z {JSON_EXAMPLE}", "' stands before the line"),
    "a host and a dash": (f"shop.example - {CLIENT} - - {COMBINED}", "'shop.example - ' stands before"),
    "a list of proxies": (f"{CLIENT}, 10.0.0.5 - - {COMBINED}", f"'{CLIENT}, ' stands before"),
    "two addresses": (f"10.0.0.5 {CLIENT} - - {COMBINED}", "'10.0.0.5 ' stands before"),
    "an address for the user": (f"10.0.0.5 - {CLIENT} {COMBINED}", "before the time is not a client, '-' and a user"),
    "a word and a name": (f"shop.example host.isp.example - - {COMBINED}", "not begin with the address or name"),
    "haproxy": (
        f'{CLIENT}:5 [10/Oct/2026:13:55:36.250] web web/s1 0/0/1 200 5 - - "GET /login HTTP/1.1"',
        "is a request, such",
    ),
    "envoy": (f'[2026-10-10T13:55:36.2Z] "GET /login HTTP/1.1" 200 - 0 5 "{CLIENT}"', "is a request, such"),
    "cloudfront": (f"2026-10-10\t13:55:36\tFRA2\t512\t{CLIENT}\tGET\tshop.example\t/login\t200", "is a request, such"),
    "docker's own file": (
        json.dumps({"log": EXAMPLE, "time": "2026-10-10T13:55:36Z"}),
        "its path is missing, .* --field path=N",
    ),
    "no time": (
        json.dumps({"when": 1791640536, "ip": CLIENT, "path": PATH}),
        r"'\{\"when\".* its time is missing, .* --field time=",
    ),
    "no client": (json.dumps({"time": 1791640536, "path": PATH}), "its client is missing, .*: --field client=NAME"),
    "a time of day": (
        json.dumps({"time": "13:55:36", "ip": CLIENT, "path": PATH}),
        "its time is '13:55:36', .*--field time=",
    ),
    "a date": (
        json.dumps({"date": "2026-10-10", "ip": CLIENT, "path": PATH}),
        "its time is '2026-10-10', .*date and a time",
    ),
    "caddy in whole nanoseconds": (
        json.dumps({**CADDY, "duration": 85_000}),
        "its duration is 85000, .*--field duration=",
    ),
    "an array": ('[{"time": 1, "path": "/"},', r"jq -c '\.\[\]'"),
    "an object of several lines": ("{", r"jq -c '\.'"),
    "a binary file": ("\0\0", "it is not text in UTF-8, or compressed"),
}


def read(folder: Path, lines: list[str], key: str = "client", **options: Any) -> list[LoggedRequest]:
    """The requests of a log with these lines."""
    (folder / "log").write_text("".join([f"{line}\n" for line in lines]), "utf-8")
    return list(LogReader([str(folder / "log")], key, **options).requests())


@pytest.mark.parametrize("shape", TEXTS)
def test_a_line_of_text_is_read(shape: str, tmp_path: Path) -> None:
    """With its time, client, method and path, as the server writes them."""
    line, request = TEXTS[shape]
    assert read(tmp_path, [line]) == [request]


@pytest.mark.parametrize("shape", OBJECTS)
def test_a_line_of_json_is_read(shape: str, tmp_path: Path) -> None:
    """By the names that servers give to the fields, or those that the user gives."""
    entry, fields, request = OBJECTS[shape]
    assert read(tmp_path, [json.dumps(entry)], fields=fields_of(fields.split())) == [request]


@pytest.mark.parametrize("shape", REFUSED)
def test_any_other_line_is_refused(shape: str, tmp_path: Path) -> None:
    """The error shows it, and says what to do."""
    line, message = REFUSED[shape]
    with pytest.raises(ConfigurationError, match=message) as raised:
        read(tmp_path, [line] * 3)
    assert repr(line[:200]) in str(raised.value)


UNREADABLE_LINES = [
    "",
    "INFO: started",
    f"{CLIENT} - - [10/Foo/2026:13:55:36 +0000] {REST}",
    f"{CLIENT} - - [99/Oct/2026:13:55:36 +0000] {REST}",
    f"{CLIENT} - - [10/Oct/2026 13:55:36] {REST}",
    f"{CLIENT} - - [] {REST}",
    f"{CLIENT} - - [10/Oct/1826:13:55:36 +0000] {REST}",
    f'{CLIENT} - - {TIME} "-" 408 0',
    f'{CLIENT} - - {TIME} "\\x16\\x03\\x01" 400 0',
    f'{CLIENT} - - {TIME} "GET login HTTP/1.1" 400 0',
    f'{CLIENT} - - {TIME} "GET /{"a" * 3000} HTTP/1.1" 404 0',
    f'{CLIENT} - - {TIME} "{"A" * 30} / HTTP/1.1" 404 0',
    f"{'a' * 300} - - {COMBINED}",
]


@given(st.lists(st.sampled_from([*[line for line, _ in TEXTS.values()][:8], *UNREADABLE_LINES]), max_size=8))
def test_a_line_means_the_same_beside_any_other(lines: list[str]) -> None:
    """Each is read or refused by itself."""
    expected, parse = dict(TEXTS.values()), text_parser(common_fields, "client")
    for line in lines:
        if line in expected:
            assert parse(line) == expected[line]
        else:
            with pytest.raises(ValueError):  # noqa: PT011  # some are raised by the standard library
                parse(line)


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
    assert [text_parser(common_fields, key)(line)[1] for key in ("client", "user", "all")] == [
        CLIENT,
        "ann",
        "everybody",
    ]
    assert [text_parser(common_fields, "user")(each)[1] for each in (EXAMPLE, f'{CLIENT} - "" {COMBINED}')] == ["", ""]
    with pytest.raises(ValueError, match="the user is not one word, but 'ann shop"):
        text_parser(common_fields, "user")(line.replace("ann", "ann shop.example"))


def test_another_key_is_refused(tmp_path: Path) -> None:
    """The error shows a right one."""
    with pytest.raises(ConfigurationError, match=r"--key must be client, user or all .* not 'field:x': --key client"):
        read(tmp_path, [EXAMPLE], "field:x")
    with pytest.raises(ConfigurationError, match="--key must be client, all or field:NAME"):
        read(tmp_path, [JSON_EXAMPLE], "user")


def test_the_key_may_be_a_field(tmp_path: Path) -> None:
    """A user that is missing, or null, is no reason to drop the request; a whole number is a key, a list is none."""
    users = ["ann", None, 7, ["x"], "10.0.0.1:80"]
    entries = [{"time": AT / 1e6 + number, "path": "/", "user": {"id": user}} for number, user in enumerate(users)]
    entries.append({"time": AT / 1e6 + 9, "path": "/"})
    keys = [key for _, key, _, _ in read(tmp_path, [json.dumps(entry) for entry in entries], "field:user.id")]
    assert keys == ["ann", "", "7", "10.0.0.1", ""]


def test_the_method_is_asked_for_where_rules_name_methods(tmp_path: Path) -> None:
    """Else a request without one is GET."""
    line = json.dumps({"time": AT / 1e6, "ip": CLIENT, "path": PATH})
    assert read(tmp_path, [line]) == [GET]
    with pytest.raises(ConfigurationError, match=r"its method is missing, .*: --field method=NAME"):
        read(tmp_path, [line], needs_method=True)
    with_method = line.replace("}", ', "verb": "GET"}')
    assert read(tmp_path, [with_method], needs_method=True, fields={"method": "verb"}) == [GET]


ODD: list[Mapping[str, Any]] = [
    {"method": ["x"]},
    {"method": 5},
    {"method": "M" * 99},
    {"duration": float("inf")},
    {"duration": -1e300},
    {"duration": float("nan")},
    {"duration": True},
    {"ts": float("inf")},
    {"ts": 10**4000},
    {"ts": True},
    {"ts": "9999-12-31T23:59:59-23:59"},
    {"ts": "0001-01-01T00:00:00+23:59"},
    {"ts": {}},
    {"client": ["x"]},
    {"client": 1.5},
    {"client": "k" * 1000},
    {"client": "\ud800"},
    {"path": None},
    {"path": 5},
    {"path": "login"},
    {"path": "/" + "a" * 5000},
    {"path": {"a": "/"}},
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:30])
def test_odd_values_cost_their_own_line(odd: Mapping[str, Any], tmp_path: Path) -> None:
    """Other types, huge numbers and texts are unreadable; or a key, if it is only an odd text."""
    entry = {"ts": AT / 1e6, "client": CLIENT, "method": "GET", "path": PATH, "duration": 0.25}
    requests = read(tmp_path, [json.dumps(entry), json.dumps({**entry, **odd})])
    assert len(requests) == 1 + (odd == {"client": "\ud800"})


def test_nesting_and_what_is_no_object_cost_their_own_line(tmp_path: Path) -> None:
    """Among the first lines as well."""
    lines = ['{"a":' * 3000, "[]", "7", "{", JSON_EXAMPLE, JSON_EXAMPLE, JSON_EXAMPLE, JSON_EXAMPLE]
    assert read(tmp_path, lines) == [LATER] * 4


def test_the_first_lines_may_be_no_requests(tmp_path: Path) -> None:
    """As where a server logs its start, too."""
    lines = ['{"level": "info", "ts": 1791640536, "msg": "serving"}', "starting", *[json.dumps(CADDY)] * 2]
    assert read(tmp_path, lines) == [LATER] * 2


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


@pytest.mark.parametrize(("value", "time_us"), TIMES)
def test_times_of_all_kinds(value: object, time_us: float) -> None:
    """Texts, and numbers of seconds, milliseconds, microseconds and nanoseconds."""
    assert time_us_of(value) == time_us


@pytest.mark.parametrize("value", [True, None, "yesterday", -1, 5, float("nan"), 1e30, [], "10/Oct/26", "١٧٩١٦٤٠٥٣٦"])
def test_what_is_no_time(value: object) -> None:
    """Neither a time that is cut short, nor a number that is none since the epoch."""
    with pytest.raises(ValueError):  # noqa: PT011  # some are raised by the standard library
        time_us_of(value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[2001:db8::7]", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("203.0.113.7:52342", "203.0.113.7"),
        ("user:1:2", "user:1:2"),
        ("7:8", "7:8"),
    ],
)
def test_addresses_count_as_they_do_for_client_ip(text: str, key: str) -> None:
    """IPv6 addresses by their networks, without ports; all other keys as they are."""
    assert client_of(text) == key


@pytest.mark.parametrize("text", ["time", "time=", "when=ts", "=x"])
def test_an_option_that_is_no_field(text: str) -> None:
    """The error quotes it."""
    with pytest.raises(ConfigurationError, match=f"not {text!r}: time=ts"):
        fields_of([text])


def test_json_is_read_however_its_fields_are_found() -> None:
    """By the first lines: a later line lacks a field, and is unreadable."""
    parse = json_parser([json.loads(JSON_EXAMPLE)], "client", {}, needs_method=False)
    with pytest.raises(ValueError, match="its path is missing, which is not a text: --field path=NAME"):
        parse('{"time": 1791640536, "client": "h", "method": "GET"}')
