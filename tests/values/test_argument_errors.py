"""Arguments that do not fit: errors show the right use, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from asgi_ratelimit import (
    AdaptiveTransport,
    Limiter,
    MemoryStore,
    PacedTransport,
    RedisStore,
    SyncLimiter,
    open_store,
    pace,
)
from asgi_ratelimit.clients import PacedAdapter, PacedMiddleware
from asgi_ratelimit.dashboard import dashboard
from asgi_ratelimit.errors import ConfigurationError, shows_use
from asgi_ratelimit.headers.header_rendering import HeaderOptions
from asgi_ratelimit.hooks import failures, log_refusals
from asgi_ratelimit.inbound.dependency import RateLimit
from asgi_ratelimit.inbound.middleware import RateLimitMiddleware
from asgi_ratelimit.inbound.penalties import Blocks, Penalty
from asgi_ratelimit.inbound.rules import Rule
from asgi_ratelimit.keys import client_ip, cookie, header, path_param, state, user
from asgi_ratelimit.metrics import opentelemetry, prometheus
from asgi_ratelimit.overrides import Overrides
from asgi_ratelimit.profiles import Profile
from tests.support.asgi import ok

CALLABLES: list[Callable[..., Any]] = [
    *(AdaptiveTransport, Limiter, MemoryStore, PacedTransport, RateLimit, RedisStore, Rule, SyncLimiter),
    *(client_ip, cookie, dashboard, header, pace, path_param, state, user),
    *(Blocks, HeaderOptions, Overrides, Penalty, Profile, failures, log_refusals, opentelemetry, prometheus),
]


@pytest.mark.parametrize("called", CALLABLES, ids=lambda called: called.__name__)
def test_an_unknown_keyword_shows_the_use(called: Callable[..., Any]) -> None:
    """The error quotes the keyword, and shows the name of what was called with right arguments."""
    with pytest.raises(ConfigurationError, match=rf"'no_such'.*: .*\b{called.__name__}\(") as raised:
        called(no_such=1)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(Rule, "/login"), "missing 1 required positional argument: 'quota': Rule(\"/login\""),
        (partial(Rule, "/x", "1/minute", ["POST"]), "3 positional arguments but 4 were given: Rule("),
        (partial(RateLimitMiddleware, ok, "5/s", rule=[]), "keyword argument 'rule'"),
        (open_store, "missing 1 required positional argument: 'url': open_store(\"redis://localhost"),
        (PacedMiddleware, "argument: 'quota': PacedMiddleware(\"20/s"),
        (partial(PacedAdapter, "20/s"), "argument: 'quota': PacedAdapter(HTTPAdapter(), "),
    ],
)
def test_arguments_that_do_not_fit(call: Callable[[], Any], message: str) -> None:
    """The error says what Python says of them, and shows a right call."""
    with pytest.raises(ConfigurationError) as raised:
        call()
    assert message in str(raised.value)


@pytest.mark.parametrize("store", ["memory://", None])
@pytest.mark.parametrize(
    ("called", "right"),
    [
        (lambda store: dashboard(store, allow=ok), r"dashboard\(store, allow=is_admin\), where store is the object"),
        (Overrides, r'Overrides\(store\), .* object that the RateLimitMiddleware has, or its URL, "redis://local'),
        (lambda store: Blocks(store=store), r'Blocks\(store=store, name="login"\), where store is the object that'),
    ],
)
def test_a_memory_of_its_own_is_refused(called: Callable[..., Any], right: str, store: str | None) -> None:
    """No limit would be in it: the page would stay empty for ever, and no change would reach anybody."""
    with pytest.raises(ConfigurationError, match=right) as raised:
        called(store)
    assert f"not {store!r}: " in str(raised.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (partial(Rule, "/", "2/minute"), "shadow"),
        (partial(dashboard, MemoryStore(), allow=lambda request: True), "show_keys"),
        (partial(SyncLimiter("5/s").rate_limit, "alice"), "best_effort"),
    ],
)
@pytest.mark.parametrize("wrong", ["false", "true", None, 0, 1])
def test_a_flag_is_true_or_false(call: Callable[..., Any], name: str, wrong: object) -> None:
    """A text such as ``"false"``, which Python takes as true, is refused, and so is all else."""
    with pytest.raises(ConfigurationError) as raised:
        call(**{name: wrong})
    assert str(raised.value) == f"{name} must be True or False, not {wrong!r}: {name}=True"


def test_an_error_of_what_is_called_is_not_one_of_the_arguments() -> None:
    """A ``TypeError`` from inside is raised as it is."""

    @shows_use("inner()")
    def inner() -> None:
        httpx.Headers(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError) as raised:
        inner()
    assert "inner()" not in str(raised.value)
