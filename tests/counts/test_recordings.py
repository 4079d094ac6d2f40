"""Recordings: some clients as a whole, the same ones in every process."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.counts import ALL, Recording, recording_in
from asgi_ratelimit.counts.minute_recordings import encoded

seconds = st.lists(
    st.tuples(st.integers(0, 59), st.dictionaries(st.text(min_size=1), st.integers(1, 100))), max_size=20
)


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
    assert some.clients == {client: cells for client, cells in every.clients.items() if client < some.below}
    assert some.cells <= most or some.below == 1


@given(seconds)
def test_it_is_read_as_it_was_written(added: list[tuple[int, dict[str, int]]]) -> None:
    """What is written of several rules is read by the name of one."""
    made = recording(added)
    content = encoded({"api": made, "login": recording([(3, {"x": 1})])})
    assert recording_in(content, "api") == (made if made.clients else None)
    assert recording_in(content, "other") is None


def test_room_is_used_again() -> None:
    """After a minute with few requests, the next one records twice the share of clients, and at most all."""
    assert Recording(below=ALL // 8).next(100).below == ALL // 4
    assert Recording(below=ALL).next(100).below == ALL
    assert recording([(0, {"x": 1, "y": 1})]).next(4).below == ALL
