"""The count of calls for one request."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from starlette.types import Receive, Scope, Send

from asgi_ratelimit import parse_quotas
from benchmarks.calls import Calls, calls_of, row, typical


def calls(total: int, files: int = 1) -> Calls:
    return Calls(
        Counter({(f"{number}.py", "f"): 1 for number in range(files - 1)} | {("last.py", "f"): total + 1 - files})
    )


def test_calls_of_our_files_are_counted_and_others_are_not() -> None:
    """The app itself is outside of the package; a function of the package that it calls is inside."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        parse_quotas("5/s")
        await send({"type": "http.response.start", "status": 200, "headers": []})

    counted = asyncio.run(calls_of(app, {}, 1))
    assert counted.functions["quota_text.py", "parse_quotas"] == 1
    assert not any("app" in function for _, function in counted.functions)


def test_a_request_that_fails_is_not_counted() -> None:
    """A refusal takes another path, and would falsify the figures."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 429, "headers": []})

    with pytest.raises(RuntimeError, match="429"):
        asyncio.run(calls_of(app, {}, 1))


def test_the_median_request_counts() -> None:
    """One request that does more, such as a periodic cleanup, does not decide."""
    requests = [calls(16, 8), calls(16, 8), calls(90, 20)]
    assert row("memory", "known", requests, 16, 8) == ["memory, known client", "16", "16", "8", "8", "0"]
    assert typical(requests).total == 16
