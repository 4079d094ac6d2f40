"""What another limit would have refused."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import parse_quotas
from asgi_ratelimit.counts.minutes import ALL, Recording
from asgi_ratelimit.dashboard.summaries import estimate
from tests.support.replaying import admitted_at

MINUTE = 30_000_000


def recorded(requests: dict[str, list[int]], below: int = ALL) -> list[tuple[int, Recording]]:
    """Recordings of requests, by client and in seconds from the start of a minute; one request in each second."""
    minutes: dict[int, Recording] = {}
    for client, seconds in requests.items():
        for second in seconds:
            recording = minutes.setdefault(MINUTE + second // 60, Recording(below))
            recording.add(second % 60, Counter({client: 1}), 10**9)
    return list(minutes.items())


@given(
    st.sets(st.integers(0, 1800), min_size=1), st.sampled_from(["3/minute", "5 per 10 seconds fixed", "4/hour rolling"])
)
def test_one_request_a_second_is_decided_exactly(seconds: set[int], text: str) -> None:
    """For a client that is recorded whole, and does not send twice in a second, it is what the limit does."""
    quotas = parse_quotas(text)
    times = sorted(seconds)
    exact = admitted_at(quotas, [MINUTE * 60.0 + second for second in times]).count(None)
    found = estimate(recorded({"ann": times}), quotas)
    assert (found.requests, found.refused, found.share) == (len(times), exact, 1.0)


def test_recordings_with_different_bounds() -> None:
    """A client counts only where every recording is sure to have it."""
    every = recorded({str(number): [0] for number in range(1000)})
    half = recorded({str(number): [60] for number in range(1000)}, ALL // 2)
    found = estimate([*every, *half], parse_quotas("1/hour"))
    assert found.share == 0.5
    assert found.requests == 2 * found.clients
    assert found.refused == found.refused_clients == found.clients
