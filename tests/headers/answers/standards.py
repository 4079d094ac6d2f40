"""Answers in the words of standards: ``Retry-After``, and all generations of the IETF drafts."""

from __future__ import annotations

from asgi_ratelimit.headers import ServerLimit
from tests.headers.answers.example import Example, read, refused

EXAMPLES = {
    # Retry-After, and its kin in milliseconds
    "RFC 9110, a delay": Example(profile="auto", status=503, headers={"retry-after": "120"}, expected=refused(120.0)),
    "RFC 9110, a date": Example(
        profile="auto", status=429, headers={"retry-after": "Thu, 26 Mar 2026 16:00:30 GMT"}, expected=refused(60.0)
    ),
    "Retry-After of an answer that is no refusal": Example(
        profile="auto", headers={"retry-after": "0"}, expected=read()
    ),
    "Retry-After of a redirection": Example(profile="auto", status=301, headers={"retry-after": "5"}, expected=read()),
    "503 of a server that is down": Example(profile="auto", status=503, headers={}, expected=read()),
    "Azure OpenAI, milliseconds": Example(
        profile="openai",
        auto=False,
        status=429,
        headers={"retry-after-ms": "1250", "retry-after": "2"},
        expected=refused(1.25),
    ),
    "Azure Cosmos DB, milliseconds": Example(
        profile="auto", status=429, headers={"x-ms-retry-after-ms": "9"}, expected=refused(0.009)
    ),
    # the IETF drafts
    "IETF draft 11": Example(
        profile="ietf",
        headers={"ratelimit-policy": '"burst";q=100;w=60,"daily";q=1000;w=86400', "ratelimit": '"burst";r=50;t=30'},
        expected=read(
            ServerLimit(name="burst", limit=100, remaining=50, window=60, reset_after=30, reset_means="next unit"),
            ServerLimit(name="daily", limit=1000, window=86_400, reset_means="next unit"),
        ),
    ),
    "IETF draft 11, a partition and bytes": Example(
        profile="ietf",
        headers={
            "ratelimit-policy": '"peruser";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:',
            "ratelimit": '"peruser";r=999;pk=:sdfjLJUOUH==:',
        },
        expected=read(
            ServerLimit(
                name="peruser",
                limit=65_535,
                remaining=999,
                window=10,
                reset_means="next unit",
                unit="content-bytes",
                bucket="sdfjLJUOUA==",
            )
        ),
    ),
    "IETF draft 10, a refusal with problem details": Example(
        profile="ietf",
        status=429,
        headers={
            "retry-after": "5",
            "ratelimit-policy": '"default";q=100;w=60',
            "ratelimit": '"default";r=0;t=4',
        },
        body={
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "status": 429,
            "violated-policies": ["default"],
        },
        expected=refused(
            5.0,
            ServerLimit(limit=100, remaining=0, window=60, reset_after=4, reset_means="next unit"),
            scope="default",
        ),
    ),
    "IETF draft 10, reduced capacity": Example(
        profile="ietf",
        status=503,
        headers={"ratelimit": '"default";r=0;t=20'},
        body={"type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity", "status": 503},
        expected=refused(
            20.0,
            ServerLimit(remaining=0, reset_after=20, reset_means="next unit"),
            scope="temporary-reduced-capacity",
        ),
    ),
    "IETF draft 10, abnormal usage": Example(
        profile="ietf",
        status=429,
        headers={"retry-after": "300"},
        body={"type": "https://iana.org/assignments/http-problem-types#abnormal-usage-detected", "status": 429},
        expected=refused(300.0, scope="abnormal-usage-detected"),
    ),
    "IETF draft 8 of express-rate-limit": Example(
        profile="ietf",
        headers={
            "ratelimit-policy": '"10-in-1min"; q=10; w=60; pk=:NTkzYTgzZTAwZTA2:',
            "ratelimit": '"10-in-1min"; r=8; t=56; pk=:NTkzYTgzZTAwZTA2:',
        },
        expected=read(
            ServerLimit(
                name="10-in-1min",
                limit=10,
                remaining=8,
                window=60,
                reset_after=56,
                reset_means="next unit",
                bucket="NTkzYTgzZTAwZTA2",
            )
        ),
    ),
    "IETF draft 8 of express-rate-limit, a partition in the policy alone": Example(
        profile="ietf",
        headers={
            "ratelimit-policy": '"10-in-1sec"; q=10; w=1; pk=:MTJjYTE3YjQ5YWYy:',
            "ratelimit": '"10-in-1sec"; r=9; t=1',
        },
        expected=read(
            ServerLimit(
                name="10-in-1sec",
                limit=10,
                remaining=9,
                window=1,
                reset_after=1,
                reset_means="next unit",
                bucket="MTJjYTE3YjQ5YWYy",
            )
        ),
    ),
    "IETF draft 8 with a token for a name": Example(
        profile="ietf",
        headers={"ratelimit": "default;r=50;t=30"},
        expected=read(ServerLimit(remaining=50, reset_after=30, reset_means="next unit")),
    ),
    "IETF draft 7": Example(
        profile="ietf",
        headers={"ratelimit": "limit=100, remaining=50, reset=5", "ratelimit-policy": "100;w=60"},
        expected=read(ServerLimit(limit=100, remaining=50, window=60, reset_after=5)),
    ),
    "IETF drafts 0 to 6": Example(
        profile="ietf",
        headers={"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50", "ratelimit-reset": "50"},
        expected=read(ServerLimit(limit=100, remaining=50, window=60, reset_after=50)),
    ),
    "IETF drafts 5 and 6, with a policy": Example(
        profile="ietf",
        headers={
            "ratelimit-limit": "10",
            "ratelimit-policy": '10;w=1, 50;w=60;comment="sliding window"',
            "ratelimit-remaining": "9",
            "ratelimit-reset": "1",
        },
        expected=read(
            ServerLimit(limit=10, remaining=9, window=1, reset_after=1),
            ServerLimit(name="50;w=60", limit=50, window=60),
        ),
    ),
    "Docker Hub": Example(
        profile="ietf",
        headers={"ratelimit-limit": "100;w=21600", "ratelimit-remaining": "76;w=21600"},
        expected=read(ServerLimit(limit=100, remaining=76, window=21_600)),
    ),
    "WHOOP": Example(
        profile="auto",
        headers={
            "x-ratelimit-limit": "100, 100;window=60, 10000;window=86400",
            "x-ratelimit-remaining": "98",
            "x-ratelimit-reset": "3",
        },
        expected=read(
            ServerLimit(limit=100, remaining=98, window=60, reset_after=3),
            ServerLimit(name="10000;w=86400", limit=10_000, window=86_400),
        ),
    ),
}
