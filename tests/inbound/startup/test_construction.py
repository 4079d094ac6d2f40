"""The construction of the middleware: what is wrong shows where it is written, or in the log at start-up."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from asgi_ratelimit import ConfigurationError, QuotaError, RateLimitMiddleware
from asgi_ratelimit.inbound.startup import construction
from tests.support.asgi import ask, crash, http, ok

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test gets all messages, as in a process of its own."""
    construction._log.cache_clear()


@pytest.mark.parametrize("wrong", ["5/minute", None, 5], ids=repr)
def test_the_app_comes_first(wrong: Any) -> None:
    """A quota in its place is quoted, and both right ways are shown."""
    mend = f"the app comes first, not {wrong!r}: app.add_middleware(RateLimitMiddleware, quota="
    with pytest.raises(ConfigurationError, match=re.escape(mend)):
        RateLimitMiddleware(wrong)


async def test_a_wrong_argument_is_logged_when_the_app_starts(caplog: pytest.LogCaptureFixture) -> None:
    """Once: Starlette builds the middleware again for each request, which raises as before."""
    app = Starlette(middleware=[Middleware(RateLimitMiddleware, quota="5/mintue")])
    await crash(app, {"type": "lifespan"}, QuotaError)
    for _ in range(2):
        await crash(app, http(), QuotaError)
    ((name, level, text),) = caplog.record_tuples
    assert (name, level) == ("asgi_ratelimit", logging.ERROR)
    assert text.startswith("RateLimitMiddleware cannot be built")
    assert "QuotaError: '5/mintue'" in text


async def test_right_arguments_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither at start-up nor at a request."""
    assert (await ask(RateLimitMiddleware(ok, "5/minute"))).status == 200
    assert caplog.records == []
