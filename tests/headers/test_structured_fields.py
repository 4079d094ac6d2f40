"""Structured fields, beside a parser that is not ours."""

from __future__ import annotations

from decimal import Decimal

import http_sfv
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asgi_ratelimit.headers.structured_fields import MAX_ITEMS, parse_list

LISTS = {
    "": [],
    '"a"': [("a", {})],
    '"a";q=1;w=60, "b"': [("a", {"q": 1, "w": 60}), ("b", {})],
    '"a" ,\t"b"': [("a", {}), ("b", {})],
    '"a";  q=1': [("a", {"q": 1})],
    '"a;q=1, \\"\\\\";r=2': [('a;q=1, "\\', {"r": 2})],
    "100, 100;w=60": [(100, {}), (100, {"w": 60})],
    "-1.5;a;b=?0;c=tok/en": [(-1.5, {"a": True, "b": False, "c": "tok/en"})],
    '"a";pk=:dHJpYWwxMjEzMjM=:': [("a", {"pk": b"trial121323"})],
    '"a";pk=:dHJpYWwxMjEzMjM:': [("a", {"pk": b"trial121323"})],
    '"a";since=@1659578233;title=%"f%c3%bc"': [("a", {"since": 1_659_578_233, "title": "f%c3%bc"})],
    '"a";q=1;q=2': [("a", {"q": 2})],
    "999999999999999": [(999_999_999_999_999, {})],
}

MALFORMED = [
    ",",
    '"a",',
    '"a" "b"',
    '"a" ;q=1',
    '"a"; q =1',
    '"a";Q=1',
    '"a";=1',
    '"a";q=',
    '"a',
    '"ä"',
    '"\\a"',
    "1000000000000000",
    "1.",
    "1.2345",
    "1.5.5",
    "--1",
    "(1 2)",
    '"a";pk=:a:',
    '"a";pk=:ä:',
    "?2",
    '"a"\t;q=1',
    '%"%C3"',
]


@pytest.mark.parametrize(("text", "members"), LISTS.items())
def test_lists(text: str, members: list[object]) -> None:
    """Members and their parameters, of every type."""
    assert [tuple(item) for item in parse_list(text) or []] == members


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_malformed_is_nothing(text: str) -> None:
    """One error anywhere, and there is no value at all."""
    assert parse_list(text) is None


def test_a_list_is_read_in_part() -> None:
    """A server cannot keep its client busy with a list that is longer than any of limits."""
    assert len(parse_list("1, " * 1_000) or []) == len(parse_list(", ".join("1" * 1_000)) or []) == MAX_ITEMS


PIECES = st.sampled_from(
    ['"a"', '"b\\""', "a", "1", "-2.5", ";", "; ", ",", ", ", "=", "q", "=1", ":YQ==:", "?1", "@5", " ", "\t", "(", "*"]
)


@given(st.lists(PIECES, min_size=1, max_size=12).map(lambda pieces: "".join(pieces).strip(" ")).filter(bool))
def test_both_parsers_agree(text: str) -> None:
    """On what is a list, and on its members; inner lists and dates apart, of which one parser knows nothing."""
    assume("(" not in text and "@" not in text)
    other = http_sfv.List()
    try:
        other.parse(text.encode())
    except ValueError:
        assert parse_list(text) is None
    else:
        members = [(plain(item.value), {name: plain(each) for name, each in item.params.items()}) for item in other]
        assert [tuple(item) for item in parse_list(text) or []] == members


def plain(value: object) -> object:
    """A value of the other parser as one of ours."""
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, http_sfv.Token) else value
