"""The stand-in for a server with the newest IETF draft behaves as that wants it."""

from __future__ import annotations

from tests.stand_ins.reporting.ietf_server import KEY, Ietf


def server(**settings: str) -> tuple[Ietf, list[float]]:
    """A server, and its time."""
    now = [1000.0]
    return Ietf(settings, lambda: now[0]), now


def test_both_policies_are_in_every_answer() -> None:
    """One field with what they are, one with what is left."""
    ietf, now = server(BURST="2")
    status, headers, _ = ietf.answer("GET", "/a")
    assert status == 200
    assert headers["ratelimit-policy"] == f'"burst";q=2;w=1;pk={KEY}, "daily";q=1000;w=86400;pk={KEY}'
    assert headers["ratelimit"] == f'"burst";r=1;t=1;pk={KEY}, "daily";r=999;t=86400;pk={KEY}'
    now[0] += 1
    assert ietf.answer("GET", "/a")[1]["ratelimit"].startswith('"burst";r=1')


def test_a_refusal_names_what_was_violated() -> None:
    """In problem details, with a Retry-After."""
    ietf, _ = server(BURST="1")
    ietf.answer("GET", "/a")
    status, headers, body = ietf.answer("GET", "/a")
    assert (status, headers["retry-after"], headers["content-type"]) == (429, "1", "application/problem+json")
    assert body["violated-policies"] == ["burst"]
    assert body["type"].endswith("#quota-exceeded")


def test_reduced_capacity_violates_no_policy() -> None:
    """It is a 503, for every other request to one path."""
    ietf, _ = server()
    answers = [ietf.answer("GET", "/busy") for _ in range(2)]
    assert [status for status, _, _ in answers] == [503, 200]
    assert answers[0][2]["type"].endswith("#temporary-reduced-capacity")
    assert "violated-policies" not in answers[0][2]
