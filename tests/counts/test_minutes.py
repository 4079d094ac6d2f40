"""What is written of a minute, and what of it can be read back, whoever wrote it."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.counts import FORMAT, Recording, encoded, part_of, recording_in

sent = st.dictionaries(st.sampled_from([str(number) for number in range(50)]), st.integers(1, 100))
seconds = st.lists(st.tuples(st.integers(0, 59), sent), max_size=20)


def recording(added: list[tuple[int, dict[str, int]]], most: int = 10**6) -> Recording:
    """A recording of requests by second and bucket."""
    made = Recording()
    for second, sent in added:
        made.add(second, Counter(sent), most)
    return made


@given(seconds, st.integers(1, 30))
def test_a_client_is_recorded_whole_or_not_at_all(added: list[tuple[int, dict[str, int]]], most: int) -> None:
    """A full recording forgets clients, and whoever is left in it is recorded as in one without a bound."""
    every, some = recording(added), recording(added, most)
    assert some.cells == {cell: count for cell, count in every.cells.items() if cell[0] < some.below}
    assert len(some.cells) <= most or some.below == 1


@given(seconds)
def test_it_is_read_as_it_was_written(added: list[tuple[int, dict[str, int]]]) -> None:
    """What is written of several rules is read by the name of one."""
    made = recording(added)
    content = encoded({"api": made, "login": recording([(3, {"x": 1})])})
    assert recording_in(content, "api") == made
    assert recording_in(content, "other") is None


HOSTILE = [
    b"",
    b"nonsense",
    b"[" * 100_000,
    b'{"api":[1]}',
    b'{"api":[1e400,[]]}',
    b'{"api":[1,[["x",1,1]]]}',
    b'{"api":[1,[[1,1,-1]]]}',
    b'{"api":[1,[[1,1,1' + b"0" * 30 + b"]]]}",
]


@pytest.mark.parametrize("content", HOSTILE, ids=lambda content: content[:30])
def test_a_recording_of_nonsense_is_none(content: bytes) -> None:
    """Compressed or not."""
    assert recording_in(content, "api") is None
    assert recording_in(zlib.compress(content), "api") is None


def test_a_recording_takes_little_memory_to_read() -> None:
    """However much it would be when it is unpacked."""
    pack = zlib.compressobj(9)
    bomb = b"".join([pack.compress(each) for each in [b'{"api":[1,{', *[b" " * 2**20] * 200, b"}]}"]]) + pack.flush()
    tracemalloc.start()
    assert recording_in(bomb, "api") is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20


VALUES: dict[str, Any] = {
    "format": FORMAT,
    "minute": 7,
    "process": "host:1:a",
    "started": 1,
    "rules": {"api": [1, 0, 0, 0, 0]},
    "seconds": [[3, 1, 0, 0, 0, 0]],
    "waits": [0] * 49,
    "keys": [["api", "api:per-minute:{ann}", 1, 0]],
    "quotas": {"api": ["1/minute"]},
    "penalties": ["api"],
    "outbound": [],
}


def part(**others: Any) -> bytes:
    """A part with these values, as it might be written by anybody; those that are ``...`` are missing."""
    values = {name: value for name, value in {**VALUES, **others}.items() if value is not ...}
    return json.dumps(values).encode() + b"\n"


def test_a_right_part_is_read() -> None:
    """With values that a later version may add."""
    read = part_of(part(more=1), 7)
    assert read is not None
    assert (read["rules"], recording_in(read["recordings"], "api")) == (VALUES["rules"], None)
    assert part_of(part(), 8) is None


@pytest.mark.parametrize("name", VALUES)
def test_a_part_that_lacks_a_value_is_left_out(name: str) -> None:
    """So does one with any other kind of value."""
    for value in (..., None, 5.5, "x", [5], [{}], {"x": 5}, [0] * 48, [[0, -1, 0, 0, 0, 0]], float("inf"), 10**30):
        is_right = (name, value) in [("process", "x"), ("outbound", [[0, -1, 0, 0, 0, 0]])]
        assert (part_of(part(**{name: value}), 7) is not None) == is_right


@pytest.mark.parametrize(
    "hostile",
    [
        {"keys": [["api", "no bucket", 1, 0]]},
        {"keys": [["api", "api:per-minute:{%FF}", 1, 0]]},
        {"keys": [["api", "api\ud800:per-minute:{ann}", 1, 0]]},
        {"rules": {"\ud800": [1, 0, 0, 0, 0]}},
        {"process": "\ud800"},
    ],
    ids=str,
)
def test_a_part_with_texts_that_are_none_is_left_out(hostile: dict[str, Any]) -> None:
    """No page could show them."""
    assert part_of(part(**hostile), 7) is None


def test_rows_that_are_not_right_are_left_out() -> None:
    """The counts of the process stay."""
    queue, learned = ["mails", 3], ["shop", "mails", 5.5, None, 1, 3, 0]
    wrong = [[], [*queue, 1], ["mails", "3"], ["shop", "mails", float("inf"), None, 1, 3, 0]]
    read = part_of(part(outbound=[queue, *wrong, learned]), 7)
    assert read is not None
    assert (read["queues"], read["learned"]) == ([queue], [learned])
