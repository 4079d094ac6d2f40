"""What all keys have in common."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from starlette.requests import HTTPConnection

from asgi_ratelimit import ConfigurationError
from asgi_ratelimit.keys import cookie, header, path_param, state, user
from asgi_ratelimit.keys.base import ScopeKey, key_text
from tests.support.asgi import http, websocket


@pytest.mark.parametrize("key", [header("x-api-key"), cookie("session"), state("tenant"), user()], ids=repr)
@pytest.mark.parametrize("scope", [http(), websocket()], ids=["http", "websocket"])
def test_keys_are_functions_of_a_connection(key: Callable[[HTTPConnection], str | None], scope: Any) -> None:
    """A key of the package can be called with any connection, as a user's own function can."""
    assert key(HTTPConnection(scope)) is None


def test_the_repr_of_a_key_shows_its_arguments() -> None:
    """All but a secret."""
    keys = [header("X-Api-Key", secret="hush"), cookie("session"), path_param("id"), user(), state("tenant")]
    shown = ["header('x-api-key')", "cookie('session')", "path_param('id')", "user('identity')", "state('tenant')"]
    assert [repr(key) for key in keys] == shown
    assert repr(path_param("id").bind("/{id}")) == "path_param('id')"


def test_a_function_returns_what_a_dependency_may_return() -> None:
    """All kinds of ids; the error lists them."""
    number = UUID(int=7)
    assert [key_text(key) for key in ("ann", b"ann", 7, number)] == ["ann", "ann", "7", str(number)]
    for wrong in (True, 1.5, object()):
        with pytest.raises(TypeError, match=r"but a key is a str, bytes, an int, a UUID or None: str\(user\.id\)"):
            key_text(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("made", [header, cookie, path_param, user, state])
@pytest.mark.parametrize("wrong", ["", None, b"id", 7], ids=repr)
def test_names_that_cannot_be_are_refused(made: Callable[[Any], object], wrong: object) -> None:
    """A wrong name is refused at start-up, quoted, with a right example."""
    with pytest.raises(ConfigurationError, match=rf'not .*: {made.__name__}\("') as refused:
        made(wrong)
    assert repr(wrong) in str(refused.value)


@pytest.mark.parametrize(
    "made",
    [path_param("id"), path_param("id").bind("/{id:path}"), state("id"), user("id")],
    ids=["route", "rule", "state", "user"],
)
def test_long_texts_are_short_keys(made: ScopeKey) -> None:
    """Long values do not fill the process's memory; different ones have different keys."""

    def key_of(text: str) -> str:
        key = made.of(
            http(
                f"/{text}",
                path_params={"id": text},
                state={"id": text},
                user=SimpleNamespace(is_authenticated=True, id=text),
            )
        )
        assert key is not None
        return key

    assert len(key_of("x" * 8192)) < 200
    assert key_of("x" * 8192) != key_of("x" * 8191)
    assert key_of("x" * 30) == "x" * 30
