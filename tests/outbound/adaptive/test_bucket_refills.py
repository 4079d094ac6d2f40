"""How answers tell units that come back one by one from those that all come back at the end of a window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.outbound.adaptive.refills import Resets
from tests.stand_ins.discord_server import Sliding, Window

SECOND_US = 1_000_000.0

requests = st.lists(st.tuples(st.integers(1, 1500), st.booleans()), min_size=1, max_size=40)
"""Milliseconds since the request before, and whether this process sees the answer: others send requests, too."""


def learned(server: Window | Sliding, requests: list[tuple[int, bool]]) -> Resets:
    """What the answers of a server show that are seen."""
    resets, now = Resets(), 1000.0
    for gap_ms, is_seen in requests:
        now += gap_ms / 1000.0
        server.wait(now)
        left, after = server.left(now)
        if is_seen:
            resets.refill(
                server.limit, server.limit - left, round(after, 3) * SECOND_US, now * SECOND_US, now * SECOND_US
            )
    return resets


@given(requests)
def test_a_window_is_never_surely_a_refill(requests: list[tuple[int, bool]]) -> None:
    """Whoever believed that would use a part of what is permitted only, and perhaps never learn better."""
    assert learned(Window(5, 1.0), requests).window_evidence >= 0.0


@given(requests)
def test_a_refill_is_never_a_window(requests: list[tuple[int, bool]]) -> None:
    """Whoever believed that would use too much at once, and be refused."""
    assert learned(Sliding(5, 1.0), requests).window_evidence <= 0.0


@given(st.lists(st.tuples(st.integers(1, 1500), st.permutations(range(20))), min_size=1, max_size=5))
def test_answers_that_overtake_others_show_no_window(crowds: list[tuple[int, list[int]]]) -> None:
    """An answer after one that left fewer units may be older: nothing has come back in between."""
    server, resets, now = Sliding(40, 1.0), Resets(), 1000.0
    for gap_ms, order in crowds:
        sent, now = now + gap_ms / 1000.0, now + gap_ms / 1000.0 + 0.02
        served = [(server.wait(sent), *server.left(sent)) for _ in order]
        for _, left, after in [served[place] for place in order]:
            now += 0.0001
            full_after_us = round(after, 3) * SECOND_US
            resets.refill(40, 40 - left, full_after_us, now * SECOND_US, sent * SECOND_US)
    assert resets.window_evidence <= 0.0
