"""On which line each key of a TOML text stands."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.inbound.config.line_numbers import Place, key_lines, line_of

TEXT = '''\
# a comment = 1
quota = "100/minute # no comment"  # [no.table]

[tiers."my plan"]
function = 'app:plan'
free = """
[no.table]
no.key = 1
"""
pro.max = [
  "1/s",  # ]
  "2/s",
]

[[rules]]
path = "/a"
penalty = { block_for = "1 hour", after = 5 }

[rules.more]
x = 1

[[rules]] # the second
"path" = \'\'\'
[[rules]]
\'\'\'
quota = "3/s"
[[rules.deep]]
a.b = 1
[[rules.deep]]
a.b = 2
'''

EXPECTED = {
    ("quota",): 2,
    ("tiers", "my plan"): 4,
    ("tiers", "my plan", "function"): 5,
    ("tiers", "my plan", "free"): 6,
    ("tiers", "my plan", "pro", "max"): 10,
    ("rules", 0): 15,
    ("rules", 0, "path"): 16,
    ("rules", 0, "penalty"): 17,
    ("rules", 0, "more", "x"): 20,
    ("rules", 1): 22,
    ("rules", 1, "path"): 23,
    ("rules", 1, "quota"): 26,
    ("rules", 1, "deep", 0, "a", "b"): 28,
    ("rules", 1, "deep", 1, "a", "b"): 30,
}


def test_each_key_has_its_line() -> None:
    """Whatever stands in texts, comments and lists."""
    tomllib.loads(TEXT)
    lines = key_lines(TEXT)
    assert {place: lines[place] for place in EXPECTED} == EXPECTED


def test_a_value_without_a_line_has_that_of_what_is_around_it() -> None:
    """As one in an inline table has."""
    lines = key_lines(TEXT)
    assert line_of(lines, ("rules", 0, "penalty", "after")) == 17
    assert line_of(lines, ("rules", 1, "no key")) == 22
    assert line_of(lines, ("nothing",)) == 1


KEYS = st.sampled_from(["a", "b-c", '"d e"', "'f.g'", '"#h"', "a.b.c", '"x" . y'])
VALUES = st.sampled_from(
    ['"a # b"', "'[t]'", "1", '"""\n[t]\nk = 1\n"""', "[\n1,\n# c = 1\n2]", "{ a = 1 }", "'''\n]'''"]
)


@given(st.lists(st.tuples(st.sampled_from(["", "[t{}]", "[[u]]", "[t{}.v]"]), KEYS, VALUES), max_size=8))
def test_every_key_of_any_text_is_found(parts: list[tuple[str, str, str]]) -> None:
    """A key that ``tomllib`` reads has a line, and on that line its last part is written."""
    text = "\n".join(f"{header.format(at)}\n{key} = {value}" for at, (header, key, value) in enumerate(parts))
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines, written = key_lines(text), text.split("\n")
    for place in places(read):
        if place in lines and isinstance(place[-1], str):
            assert place[-1] in written[lines[place] - 1]
        else:
            assert isinstance(place[-1], int) or place[:-1] in lines, place


def places(value: Any, place: Place = ()) -> list[Place]:
    """The places of all tables and keys, those of inline tables and of plain lists apart."""
    if isinstance(value, dict):
        return [each for key, part in value.items() for each in [(*place, key), *places(part, (*place, key))]]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [each for at, part in enumerate(value) for each in places(part, (*place, at))]
    return []
