"""Lines in the common and the combined log format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.tools.logs.access_log import EXAMPLE, access_log_parser

AT = 1_791_640_536 * 1_000_000
"""10 October 2026, 13:55:36 UTC, in microseconds."""

REST = '"GET /login HTTP/1.1" 200 512'

READ = [
    (EXAMPLE, (AT, "203.0.113.7", "GET", "/login")),
    (f'203.0.113.7 - - [10/Oct/2026:15:55:36 +0200] {REST} "-" "curl/8"', (AT, "203.0.113.7", "GET", "/login")),
    (f"203.0.113.7 - - [10/Oct/2026:09:25:36 -0430] {REST}", (AT, "203.0.113.7", "GET", "/login")),
    (
        f"www.example.org:443 203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] {REST}",
        (AT, "203.0.113.7", "GET", "/login"),
    ),
    (f"2001:db8::1 - ann lee [10/Oct/2026:13:55:36 +0000] {REST}", (AT, "2001:db8::1", "GET", "/login")),
    ('h - - [10/Oct/2026:13:55:36 +0000] "POST /a%20b?x=1 HTTP/2.0" 429 0', (AT, "h", "POST", "/a b")),
    ('h - - [10/Oct/2026:13:55:36 +0000] "GET http://shop/a?x HTTP/1.1" 200 0', (AT, "h", "GET", "/a")),
    (f"- - - [10/Oct/2026:13:55:36 +0000] {REST}", (AT, "", "GET", "/login")),
]

UNREADABLE = [
    "",
    "INFO: started",
    f"203.0.113.7 - - [10/Foo/2026:13:55:36 +0000] {REST}",
    f"203.0.113.7 - - [99/Oct/2026:13:55:36 +0000] {REST}",
    f"203.0.113.7 - - [10/Oct/2026 13:55:36] {REST}",
    f"203.0.113.7 - - [] {REST}",
    f"203.0.113.7 - - [10/Oct/1826:13:55:36 +0000] {REST}",
    '203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "-" 408 0',
    '203.0.113.7 - - [10/Oct/2026:13:55:36 +0000] "\\x16\\x03\\x01" 400 0',
    "[" * 50_000,
]


@pytest.mark.parametrize(("line", "request_"), READ)
def test_a_line_is_read(line: str, request_: tuple[object, ...]) -> None:
    """With its time, client, method and path, whatever the zone and the virtual host."""
    assert access_log_parser("client")(f"{line}\n") == [request_]


@pytest.mark.parametrize("line", UNREADABLE)
def test_any_other_line_is_unreadable(line: str) -> None:
    """Also one whose time or request is none, and one that would keep a pattern busy."""
    assert access_log_parser("client")(f"{line}\n") == []


def test_the_key_may_be_the_user_or_everybody() -> None:
    """A request without a user has no key."""
    line = f"203.0.113.7 - ann [10/Oct/2026:13:55:36 +0000] {REST}\n"
    keys = [access_log_parser(key)(line)[0][1] for key in ("client", "user", "all")]
    assert keys == ["203.0.113.7", "ann", "everybody"]
    assert access_log_parser("user")(f"{EXAMPLE}\n")[0][1] == ""


def test_another_key_is_refused() -> None:
    """The error shows a right one."""
    with pytest.raises(ConfigurationError, match=r"--key must be client, user or all .* not 'field:x': --key client"):
        access_log_parser("field:x")


@given(st.lists(st.sampled_from([*[line for line, _ in READ], *UNREADABLE[:-1]]), max_size=6))
def test_a_line_means_the_same_beside_any_other(lines: list[str]) -> None:
    """One never changes another, and those that cannot be read are left out."""
    expected = dict(READ)
    text = "".join([f"{line}\n" for line in lines])
    assert access_log_parser("client")(text) == [expected[line] for line in lines if line in expected]
