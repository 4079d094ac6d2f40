"""Patterns of rules: what they match, and that no path makes them take long."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.convertors import CONVERTOR_TYPES, Convertor, register_url_convertor
from starlette.routing import compile_path as starlette_pattern

from asgi_ratelimit import ConfigurationError, RateLimitMiddleware, Rule
from asgi_ratelimit.keys.path_patterns import compile_rule_path
from tests.support.asgi import ok

LINEAR = [
    "/",
    "/users/{id}",
    "/users/{id:int}/posts/{post:uuid}",
    "/files/{name}.json",
    "/files/{rest:path}",
    "/{rest:path}/download",
    "/{tenant:path}/blob/{rest:path}",
    "/{rest:path}/{name}.json",
    "/v{version:float}/{name}",
    "/{a}-{id:uuid}",
    "/{a:int}-{b:int}-{c:int}/x",
    "/{a}.{b}",
    "/{a}{b}",
    "/{a}-{b}-x-{c}.json",
    "/{rest:path}/{a}-{b}/x",
]
REFUSED = ["/{a:path}/{b:path}/x", "/{a:path}-{b}", "/{a}-{b:path}/x", "/{a}1{b:int}/x", "/{a:int}{b:int}"]


class Day(Convertor[str]):
    regex = "[0-9]{4}-[0-9]{2}-[0-9]{2}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


@pytest.fixture
def _day() -> Iterator[None]:
    """A kind of parameter that the app has added."""
    register_url_convertor("day", Day())
    yield
    del CONVERTOR_TYPES["day"]


@pytest.mark.parametrize("path", LINEAR)
def test_a_long_path_does_not_take_long(path: str) -> None:
    """A path of 60,000 characters that nearly matches; where it took polynomial time, this test would not end."""
    pattern, _ = compile_rule_path(path)
    for filling in ("-", "a", "1", ".", "/", "a-", "1-", "/x", "/blob", "--", "a.", "-x-", "aa"):
        assert pattern.match("/" + filling * 30_000 + "/\0/") is None or "rest" in path
        pattern.match("/x-" + filling * 30_000 + "\0")


def test_two_rests_of_a_path_are_split_as_the_router_does() -> None:
    """Only a single one may lack the slash before it."""
    match = compile_rule_path("/t/{a:path}/{b:path}")[0].match("/t/x/y")
    assert match is not None
    assert match.groupdict() == {"a": "x", "b": "y"}


@pytest.mark.parametrize("path", REFUSED)
def test_a_pattern_that_could_take_long_is_refused(path: str) -> None:
    """At start, with the path and what to write instead; the same holds for a rule's."""
    with pytest.raises(ConfigurationError, match=re.escape(repr(path))) as refused:
        RateLimitMiddleware(ok, rules=[Rule(path, "1/s")])
    assert 'Rule("/files/{rest:path}", ...)' in str(refused.value)


@pytest.mark.usefixtures("_day")
@pytest.mark.parametrize(
    ("path", "text"), [("/{a:day}/{b:day}", "/2026-01-02/2026-01-03"), ("/{s}/{d:day}", "/x/2026-01-02")]
)
def test_kinds_of_the_app_count_as_parts_of_segments(path: str, text: str) -> None:
    """A "/" between two of them is enough."""
    pattern, _ = compile_rule_path(path)
    assert pattern.match(text)
    assert not pattern.match(text + "/")


TEXTS = st.text(st.sampled_from("ax-./1\n"), max_size=14).map(lambda text: f"/{text}")
PATTERNS = st.lists(st.sampled_from(["-", "a", "x", ".", "/{}", "{}", "/"]), max_size=9).map("".join)


def numbered(pattern: str) -> str:
    """The pattern with a name for each parameter."""
    pieces = pattern.split("{}")
    return "/" + "".join([f"{piece}{{p{number}}}" for number, piece in enumerate(pieces[:-1])]) + pieces[-1]


@given(PATTERNS.map(numbered), TEXTS)
def test_a_rule_matches_what_a_route_matches(path: str, text: str) -> None:
    """Whatever is between parameters."""
    pattern, _ = compile_rule_path(path)
    expected = re.compile(starlette_pattern(path)[0].pattern, re.DOTALL).match(text)
    assert (pattern.match(text) is None) == (expected is None)


@pytest.mark.parametrize("path", ["/api/users/{id}", "/users/{id}"])
def test_a_rule_may_name_the_root_path(path: str) -> None:
    """A path is matched below the root path; a rule that names it means the same."""
    pattern, _ = compile_rule_path(path, "/api")
    assert pattern.match("/users/1-2")
    assert bool(pattern.match("/api/users/1-2")) is path.startswith("/api")
    assert not pattern.match("/other/api/users/1-2")
