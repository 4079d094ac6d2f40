"""GitHub's stand-in behaves as documented."""

from __future__ import annotations

from tests.stand_ins.reporting.github_server import GitHub

NOW = 1_800_000_000.0


def server(**settings: str) -> tuple[GitHub, list[float]]:
    """A server, and its time."""
    now = [NOW]
    return GitHub(settings, lambda: now[0]), now


def test_the_primary_limit() -> None:
    """A 403 with nothing remaining until the reset, in seconds since 1970; each resource has its own."""
    github, now = server(LIMIT="2", PERIOD="60")
    answers = [github.answer("GET", "/repos/one") for _ in range(3)]
    assert [(status, headers["x-ratelimit-remaining"]) for status, headers, _ in answers] == [
        (200, "1"),
        (200, "0"),
        (403, "0"),
    ]
    assert answers[2][1]["x-ratelimit-reset"] == str(int(NOW) + 60)
    assert "retry-after" not in answers[2][1]
    assert github.answer("GET", "/search/code")[1]["x-ratelimit-resource"] == "search"
    now[0] += 60
    assert github.answer("GET", "/repos/one")[0] == 200


def test_the_secondary_limit() -> None:
    """A 403 although requests remain, with a message, and with Retry-After where it is set; what writes costs more."""
    github, _ = server(POINTS="6", POINTS_PERIOD="30")
    assert github.answer("POST", "/repos/one/issues")[0] == github.answer("GET", "/repos/one")[0] == 200
    status, headers, body = github.answer("GET", "/repos/one")
    assert (status, headers["x-ratelimit-remaining"], headers["retry-after"]) == (403, "58", "30")
    assert "secondary rate limit" in body["message"]
    assert "retry-after" not in server(POINTS="0", RETRY_AFTER="")[0].answer("GET", "/")[1]
