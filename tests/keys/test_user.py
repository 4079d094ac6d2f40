"""Keys by the authenticated user and by ``request.state``."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from starlette.authentication import SimpleUser, UnauthenticatedUser
from starlette.requests import Request

from asgi_ratelimit.keys import state, user
from asgi_ratelimit.logs import warn_once
from tests.support.asgi import http


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Each test gets all warnings, as in a process of its own."""
    warn_once.cache_clear()


def user_key(current: object, *attribute: str) -> str | None:
    return user(*attribute).of(http(user=current))


class Account:
    """A user of a class of the app's own."""

    is_authenticated = True

    def __init__(self, number: object) -> None:
        self.id = number


def test_the_user_is_the_one_who_is_authenticated() -> None:
    """By identity, or by the attribute that is named; others have no key."""
    assert user_key(SimpleUser("alice")) == "alice"
    assert user_key(UnauthenticatedUser()) is None
    assert user_key(Account(7), "id") == "7"
    assert user_key(Account(UUID(int=7)), "id") == "00000000-0000-0000-0000-000000000007"
    assert user_key(Account(None), "id") is None


@pytest.mark.parametrize("current", [Account(7), type("Bare", (Account,), {"id": object()})(7)], ids=["none", "other"])
def test_a_user_without_the_attribute_is_an_error(current: object) -> None:
    """The error names the class and the remedy."""
    with pytest.raises(TypeError, match=r'user\("id"\)'):
        user_key(current)


@pytest.mark.parametrize("value", [1.5, True, object(), ["7"]], ids=["float", "bool", "object", "list"])
def test_what_has_no_lasting_text_is_no_key(value: object) -> None:
    """An object with another text in each process would get a new bucket for each request."""
    with pytest.raises(TypeError, match=r"str\(user\.id\)"):
        user_key(Account(value), "id")


def test_without_authentication_there_is_no_user_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A limit outside the authentication would have no effect: one warning is logged."""
    key = user()
    assert [key.of(http()) for _ in range(3)] == [None] * 3
    assert [(record.name, record.levelno) for record in caplog.records] == [("asgi_ratelimit", logging.WARNING)]
    assert "add it after the limit with add_middleware, or before it in middleware=[...]" in caplog.text


def test_state_is_a_value_of_outer_middleware() -> None:
    """Text, bytes, a number or a UUID; without a value there is no key."""
    key = state("tenant")
    values = ["acme", b"acme", 7, UUID(int=7), None]
    expected = ["acme", "acme", "7", "00000000-0000-0000-0000-000000000007", None]
    assert [key.of(http(state={"tenant": value})) for value in values] == expected
    assert key.of(http(state={"other": 1})) is None
    assert key.of(http()) is None


def test_state_is_that_of_the_request() -> None:
    """``request.state.tenant = ...`` sets it."""
    request = Request(http())
    request.state.tenant = "acme"
    assert state("tenant")(request) == "acme"
