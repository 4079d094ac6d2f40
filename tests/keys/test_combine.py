"""Keys made of other keys: parts never run together, and none can be left out."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from starlette.types import Scope

from asgi_ratelimit import ConfigurationError, Rule, client_ip
from asgi_ratelimit.keys import combine, first_of, header, path_param, state
from asgi_ratelimit.keys.base import ScopeKey
from tests.support.asgi import ask, http, limited, ok
from tests.support.names import named

PARTS = st.lists(
    st.none() | st.text(st.characters(codec=None) | st.sampled_from("0123456789:-"), max_size=6), min_size=1, max_size=4
)


LONG = "x" * 8192


class says(ScopeKey):  # noqa: N801  # a key, spelt like one
    """A key that is always this one."""

    def __init__(self, key: str | None) -> None:
        self.key = key

    def of(self, scope: Scope) -> str | None:  # noqa: ARG002
        return self.key


def combined(keys: list[str | None]) -> str | None:
    key = combine(*map(says, keys))(HTTPConnection(http()))
    assert key is None or isinstance(key, str)
    return key


@given(PARTS, PARTS)
def test_parts_never_run_together(one: list[str | None], other: list[str | None]) -> None:
    """Two combinations have the same key only if all their parts are equal, whatever the parts contain."""
    if one != other and not all(part is None for part in one + other):
        assert combined(one) != combined(other)


def test_a_long_combination_is_a_short_key() -> None:
    """Invented values do not fill the memory, and another long combination has another key."""
    keys = [combined([LONG, "a"]), combined([LONG, "b"]), combined([LONG + "a", ""])]
    assert len(set(keys)) == 3
    assert max(len(key or "") for key in keys) < 200


def test_a_part_cannot_be_left_out() -> None:
    """Without the header the client has a bucket of its own, not one that all clients without it share."""
    key = combine(client_ip(), header("x-api-key"))
    with_it, without = http(headers=[(b"x-api-key", b"a")]), http()
    elsewhere = http(client=("192.0.2.2", 1))
    keys = [key(HTTPConnection(scope)) for scope in (with_it, without, elsewhere)]
    assert None not in keys
    assert len(set(keys)) == 3


def test_the_first_that_has_a_key_decides() -> None:
    """A user whose name is an address has another key than the address."""
    key = first_of(state("user"), client_ip())
    scopes = [http(state={"user": "alice"}), http(), http(state={"user": "192.0.2.1"})]
    keys = [key(HTTPConnection(scope)) for scope in scopes]
    assert len(set(keys)) == 3
    assert keys == ["0:alice", "1:192.0.2.1", "0:192.0.2.1"]


async def later(connection: HTTPConnection) -> str:
    return "later"


def nothing(connection: HTTPConnection) -> None:
    return None


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (combine(says("a"), later), "1:a5:later"),
        (combine(nothing, later, says(None)), "-5:later-"),
        (combine(combine(says("a"), later), says("b")), "10:1:a5:later1:b"),
        (first_of(says("a"), later), "0:a"),
        (first_of(nothing, later), "1:later"),
        (combine(nothing, says(None)), None),
        (first_of(says(None), nothing), None),
    ],
)
async def test_parts_may_be_functions_of_one_s_own(key: Any, expected: str | None) -> None:
    """Sync or async, text or bytes, among keys of the package or alone."""
    assert await key(HTTPConnection(http())) == expected


@pytest.mark.anyio
@pytest.mark.parametrize("made", [combine, first_of])
async def test_a_parameter_of_the_rule_s_path_may_be_a_part(made: Any) -> None:
    """Nested parts too: each combination of item and client has its own bucket."""
    key = made(combine(path_param("id"), client_ip()), later)
    app = limited(ok, None, rules=[Rule("/items/{id:int}", "1/minute", key=key)])
    scopes = [http("/items/7"), http("/items/007"), http("/items/8"), http("/items/7", client=("192.0.2.2", 1))]
    assert [(await ask(app, scope)).status for scope in scopes] == [200, 429, 200, 200]


@pytest.mark.parametrize("made", [combine, first_of])
@pytest.mark.parametrize("wrong", [(), "client_ip", None, Depends(str), client_ip, header, combine], ids=named)
def test_what_is_no_key_is_refused(made: Any, wrong: Any) -> None:
    """No keys, or what is not callable or lacks its call: refused at start-up, quoted, with a right example."""
    with pytest.raises(ConfigurationError, match=rf": {made.__name__}\(") as refused:
        made(*(wrong if wrong == () else (header("x-api-key"), wrong)))
    assert wrong == () or repr(wrong) in str(refused.value)
