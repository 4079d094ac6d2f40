"""Lists: clients that are never limited, and clients that are always refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from asgi_ratelimit import ConfigurationError, RateLimitMiddleware, Rule, client_ip
from asgi_ratelimit.keys import first_of, path_param, user
from tests.support.asgi import ask, http, limited, ok
from tests.support.names import named

pytestmark = pytest.mark.anyio

OFFICE = client_ip().within("10.0.0.0/8", "2001:db8::/32", "192.0.2.7")


def at(address: str | None, **more: Any) -> dict[str, Any]:
    return http(client=None if address is None else (address, 1), **more)


async def statuses(app: Any, *addresses: str | None) -> list[int]:
    return [(await ask(app, at(address))).status for address in addresses]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.0", True),
        ("192.0.2.7", True),
        ("::ffff:10.0.0.1", True),
        ("2001:db8:ffff::1", True),
        ("2002:a00:1::1", False),
        ("64:ff9b::10.0.0.1", False),
        ("testclient", False),
        (None, False),
    ],
)
def test_within_is_about_the_client_s_address(address: str | None, expected: bool) -> None:
    """Networks and addresses of both versions; invalid addresses and those in a tunnel are in none of them."""
    assert OFFICE.of(at(address)) is expected
    assert OFFICE(HTTPConnection(at(address))) is expected


@pytest.mark.parametrize(("forwarded", "expected"), [("10.0.0.1", True), ("10.0.0.1, 8.8.8.8", False), ("junk", False)])
def test_within_trusts_the_proxies_of_its_key(forwarded: str, expected: bool) -> None:
    """The client is the one that the key sees: nobody gets onto a list by a forged header."""
    headers = [(b"x-forwarded-for", forwarded.encode())]
    test = client_ip(trusted_proxies=["192.0.2.0/24"]).within("10.0.0.0/8")
    assert test.of(at("192.0.2.1", headers=headers)) is expected
    assert not test.of(at("8.8.4.4", headers=headers))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "tunnel", ["2002:a06:601::1", "64:ff9b::10.6.6.1", "2001:0:1:2:3:4:f5f9:f9fe", "::ffff:10.6.6.1"]
)
async def test_a_tunnel_gets_nobody_past_deny_or_onto_allow(tunnel: str) -> None:
    """``deny`` is about the IPv4 host inside as well; ``allow`` is not, because such an address is easy to get."""
    there = client_ip().within("10.6.6.0/24")
    for test in (there, lambda request: there(request) or False):
        denied = await ask(limited(ok, "9/minute", deny=test), at(tunnel))
        assert denied.status == 429
        allowed = limited(ok, "1/minute", allow=test, deny=lambda request: False)
        statuses = [(await ask(allowed, at(tunnel))).status for _ in range(2)]
        assert statuses == ([200, 200] if tunnel.startswith("::ffff") else [200, 429])


@pytest.mark.parametrize("wrong", [(), ("office",), ("10.0.0.0/33",), ("10.0.0.0/8", "")], ids=repr)
def test_invalid_networks_are_refused(wrong: tuple[str, ...]) -> None:
    """At start-up, with a right example."""
    with pytest.raises(ConfigurationError, match=r'client_ip\(\)\.within\("10\.0\.0\.0/8"'):
        client_ip().within(*wrong)


async def test_an_allowed_client_is_not_limited() -> None:
    """No quota, rule or header applies to it; all apply to others."""
    app = limited(ok, "1/minute", rules=[Rule("/{rest:path}", "1/minute")], allow=OFFICE)
    assert await statuses(app, *["10.0.0.1"] * 5, *["8.8.8.8"] * 2) == [200] * 6 + [429]
    assert not any("ratelimit" in name for name in (await ask(app, at("10.0.0.1"))).headers)


async def test_a_denied_client_is_always_refused() -> None:
    """Even where there is no limit: with 429, the type for abnormal usage, and without Retry-After."""
    app = limited(ok, rules=[Rule("/", None)], deny=OFFICE)
    peer = await ask(app, at("10.0.0.1"))
    assert (peer.status, peer.problem["type"].partition("#")[2]) == (429, "abnormal-usage-detected")
    assert "retry-after" not in peer.headers
    assert await statuses(app, "8.8.8.8", "10.0.0.1", "8.8.8.8") == [200, 429, 200]


async def test_a_client_on_both_lists_is_denied() -> None:
    """A denied part of an allowed network, for instance."""
    app = limited(ok, "1/minute", allow=OFFICE, deny=client_ip().within("10.6.6.0/24"))
    assert await statuses(app, "10.0.0.1", "10.0.0.1", "10.6.6.6") == [200, 200, 429]


async def staff(connection: HTTPConnection) -> bool:
    return connection.headers.get("x-staff") == "yes"


async def test_a_list_may_be_any_function() -> None:
    """Sync or async, over anything in the request."""
    app = limited(ok, "1/minute", allow=staff, deny=lambda connection: connection.url.path == "/wp-login.php")
    members = at("8.8.8.8", headers=[(b"x-staff", b"yes")])
    assert [(await ask(app, members)).status for _ in range(3)] == [200] * 3
    assert (await ask(app, {**members, "path": "/wp-login.php"})).status == 429


def fails(connection: HTTPConnection) -> bool:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"allow": fails}, [200, 429]),
        ({"deny": fails}, [200, 429]),
        ({"allow": fails, "on_error": "deny"}, [200, 429]),
        ({"deny": fails, "on_error": "deny"}, [503, 503]),
    ],
    ids=named,
)
async def test_a_list_that_fails_is_empty(
    options: dict[str, Any], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged once, and the limits apply; with ``on_error="deny"`` a failing ``deny`` refuses everybody."""
    assert await statuses(limited(ok, "1/minute", **options), "8.8.8.8", "8.8.8.8") == expected
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("answer", ["false", 1, 0, "", object(), NotImplemented, (each for each in ())], ids=named)
@pytest.mark.parametrize(
    ("options", "expected"),
    [({"allow": ...}, [200, 429]), ({"deny": ...}, [200, 429]), ({"deny": ..., "on_error": "deny"}, [503, 503])],
    ids=named,
)
async def test_a_list_answers_with_true_or_false(
    answer: object, options: dict[str, Any], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Anything else counts as a failure: a text such as ``"false"`` would be true in a condition.

    The log has its kind only, because it may be what a client has sent.
    """
    lists = {name: (lambda connection: answer) if value is ... else value for name, value in options.items()}
    assert await statuses(limited(ok, "1/minute", **lists), "8.8.8.8", "8.8.8.8") == expected
    (name, *_) = options
    right = f"{name}=lambda request: request.headers.get('x-client') in CLIENTS"
    assert f"{name} returns True or False, not {type(answer).__name__}: {right}" in caplog.text


@pytest.mark.parametrize("name", ["allow", "deny"])
@pytest.mark.parametrize(
    "key", [client_ip(["10.0.0.0/8"]), user(), first_of(user(), client_ip()), path_param("id"), client_ip().within]
)
def test_a_key_is_not_a_list(name: str, key: Any) -> None:
    """It is true for everybody who has one, so that nobody, or everybody, would be limited, and so is a method."""
    shown = "within(networks)" if hasattr(key, "__self__") else repr(key)
    right = f'{name} is a function of the connection, not {shown}: {name}=client_ip().within("10.0.0.0/8")'
    with pytest.raises(ConfigurationError, match=re.escape(right)):
        RateLimitMiddleware(ok, "1/minute", **{name: key})
