"""The construction of the middleware: what is wrong shows where it is written, or in the log at start-up."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from asgi_ratelimit import ConfigurationError, QuotaError, RateLimitMiddleware, Rule, client_ip
from asgi_ratelimit.inbound import checks
from asgi_ratelimit.keys import combine, path_param
from tests.support.asgi import ask, crash, http, ok

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test gets all messages, as in a process of its own."""
    checks._log.cache_clear()


@pytest.mark.parametrize("wrong", ["5/minute", None, 5], ids=repr)
def test_the_app_comes_first(wrong: Any) -> None:
    """A quota in its place is quoted, and both right ways are shown."""
    mend = f"the first argument is an app of ASGI, not {wrong!r}: RateLimitMiddleware(app, "
    with pytest.raises(ConfigurationError, match=re.escape(mend)):
        RateLimitMiddleware(wrong)


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((), {"quota": "5/minute"}, "missing 1 required positional argument: 'app'"),
        ((ok, "5/minute", "10/hour"), {}, "4 were given"),
        ((ok,), {"limit": "5/minute"}, "unexpected keyword argument 'limit'"),
    ],
    ids=["no app", "two quotas", "another name"],
)
def test_arguments_that_do_not_fit(
    arguments: tuple[Any, ...], options: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The error says what is wrong, and shows both right ways; it is logged like any other."""
    with pytest.raises(ConfigurationError, match=f"{re.escape(why)}.*: app.add_middleware") as raised:
        RateLimitMiddleware(*arguments, **options)
    assert str(raised.value) in caplog.text


def test_an_error_of_a_function_is_not_one_of_the_arguments() -> None:
    """What the constructor calls may raise ``TypeError``, which is raised as it is."""

    def names() -> Any:
        raise TypeError("mine")
        yield

    with pytest.raises(TypeError, match="mine"):
        RateLimitMiddleware(ok, rules=names())


def test_a_middleware_instead_of_its_class() -> None:
    """Starlette calls it with an app; Python's own error begins with the right form."""
    app = Starlette()
    app.add_middleware(RateLimitMiddleware(app, "5/minute"))  # type: ignore[arg-type]
    right = r'is added as a class: app.add_middleware\(RateLimitMiddleware, quota="5/minute"\): RateLimitMiddleware.__c'
    with pytest.raises(TypeError, match=right):
        app.build_middleware_stack()


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


def test_an_app_of_wsgi_is_refused() -> None:
    """The error shows what makes one of ASGI of it."""

    def wsgi(environ: Any, start_response: Any) -> Any: ...

    with pytest.raises(ConfigurationError, match=r"WsgiToAsgi\(app\) of asgiref for WSGI"):
        RateLimitMiddleware(wsgi, "1/s")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [path_param("id"), combine(client_ip(), path_param("id"))])
def test_a_parameter_of_the_path_is_no_key_of_all_requests(key: Any) -> None:
    """No router has read it yet, and the client's address would be the key of all; routes and rules have one."""
    app = Starlette(middleware=[Middleware(RateLimitMiddleware, "1/s", key=key)])
    wrong = r"path_param\('id'\) is evaluated before the request is routed"
    with pytest.raises(ConfigurationError, match=wrong), TestClient(app):
        pass
    rules = [Rule("/{id}", "1/s")]
    with TestClient(Starlette(middleware=[Middleware(RateLimitMiddleware, rules=rules, key=key)])):
        pass
    limited = [Middleware(RateLimitMiddleware, "1/s", key=key)]
    route = Route("/{id}", lambda request: PlainTextResponse("fine"), middleware=limited)
    assert TestClient(Starlette(routes=[route])).get("/7").status_code == 200
