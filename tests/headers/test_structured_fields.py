"""Structured fields, beside a parser that is not ours."""

from __future__ import annotations

from decimal import Decimal

import http_sfv
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asgi_ratelimit.headers.header_values import parse_list

LISTS = [
    '"a";q=1;w=60, "b"',
    '"a" ,\t"b"',
    '"a";  q=1',
    '"a;q=1, \\"\\\\";r=2',
    "100, 100;w=60",
    "-1.5;a;b=?0;c=tok/en",
    '"a";pk=:dHJpYWwxMjEzMjM=:',
    '"a";q=1;q=2',
    "999999999999999",
]
MALFORMED = ['"a",', '"a" "b"', '"a" ;q=1', '"a";Q=1', '"a";q=', '"a', '"ä"', '"\\a"', "1000000000000000", "1.2345"]
MALFORMED += ["--1", "(1 2)", '"a";pk=:a:', "?2", '"a"\t;q=1', '%"%C3"']
PIECES = st.sampled_from(
    ['"a"', '"b\\""', "a", "1", "-2.5", ";", "; ", ",", ", ", "=", "q", "=1", ":YQ==:", "?1", " ", "\t", "*"]
)


def assert_agreement(text: str) -> None:
    """That both parsers read the same items, or that neither reads any."""
    other = http_sfv.List()
    try:
        other.parse(text.encode())
    except ValueError:
        other = []
    items = [(plain(item.value), {name: plain(each) for name, each in item.params.items()}) for item in other]
    assert [tuple(item) for item in parse_list(text)] == items


def plain(value: object) -> object:
    """A value of the other parser as one of ours: what is neither a number nor a string is as it is written."""
    if isinstance(value, bool):
        return "?1" if value else "?0"
    if isinstance(value, int | Decimal):
        return float(value)
    return ":YQ==:" if value == b"a" else ":dHJpYWwxMjEzMjM=:" if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize("text", LISTS + MALFORMED)
def test_lists(text: str) -> None:
    """One error anywhere, and there is no value at all."""
    if "(" not in text:  # an inner list, which no header of limits has
        assert_agreement(text)
    assert bool(parse_list(text)) == (text in LISTS)


@given(st.lists(PIECES, min_size=1, max_size=12).map(lambda pieces: "".join(pieces).strip(" \t")))
def test_both_parsers_agree(text: str) -> None:
    """On what is a list, and on its members."""
    assume(text)
    assert_agreement(text)


def test_other_types_do_no_harm() -> None:
    """A date and a display string, which the other parser does not know, are parameters like any other."""
    (item,) = parse_list('"a";q=1;since=@1659578233;title=%"f%c3%bc"')
    assert (item.value, item.number("q"), item.parameters["since"]) == ("a", 1.0, "@1659578233")
