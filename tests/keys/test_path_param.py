"""The key by a parameter of the path."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Mount, Route, Router

from asgi_ratelimit import ConfigurationError, Rule
from asgi_ratelimit.keys import path_param
from tests.support.asgi import ask, http, limited, ok

ITEMS = Rule("/items/{id:int}", "1/minute", key=path_param("id"))


class Shout(Convertor[Any]):
    """What it reads has no text of its own."""

    regex, unique = "[A-Za-z0-9]+", itertools.count()

    def convert(self, value: str) -> Any:
        return SimpleNamespace(text=value.lower(), unique=next(self.unique))

    def to_string(self, value: Any) -> str:
        return str(value.text)


register_url_convertor("shout", Shout())


@pytest.mark.parametrize(
    ("path", "spellings"),
    [
        ("/{id:int}", ["7", "07", "000007"]),
        ("/{id:path}", ["http://a/b", "/http:/a/b", "http:///a//b/"]),
        ("/{id:float}", ["1.5", "1.50", "01.5"]),
        ("/{id:shout}", ["abc", "ABC", "aBc"]),
        ("/{id:uuid}", ["0123456789abcdef0123456789abcdef", "01234567-89AB-cdef-0123-456789abcdef"]),
    ],
)
def test_a_parameter_has_one_key_in_all_its_spellings(path: str, spellings: list[str]) -> None:
    """Spellings that are equal to the app have one bucket; another value has another."""
    key = path_param("id").bind(path)
    assert len({key.of(http(f"/{text}")) for text in spellings}) == 1
    assert key.of(http(f"/{spellings[0][:-1]}9")) != key.of(http(f"/{spellings[0]}"))


@pytest.mark.parametrize("path", ["/items", "/items/{item}", "/{rest:path}", "/{id}.{ext}", "/x/{a}-{id}"])
def test_a_rule_without_the_parameter_is_refused(path: str) -> None:
    """Or with one that apps read otherwise: it is refused at start-up, with the name, the path, and a right example."""
    with pytest.raises(ConfigurationError, match=r"Rule\(\"/items/\{id\}\"") as refused:
        limited(ok, None, rules=[Rule(path, "1/minute", key=path_param("id"))])
    assert "'id'" in str(refused.value)
    assert path in str(refused.value)


def routed(**options: Any) -> list[Middleware]:
    return [Middleware(limited, quota="1/minute", key=path_param("id"), **options)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "route",
    [
        Route("/items/{id:int}/", Response(), middleware=routed()),
        Mount("/items/{id:int}", routes=[Route("/", Response())], middleware=routed()),
    ],
    ids=["route", "mount"],
)
async def test_in_the_middleware_of_a_route_it_is_the_route_s(route: Route | Mount) -> None:
    """There the request has been routed, so the scope has the route's parameters."""
    app = Router([route])
    assert [(await ask(app, http(f"/items/{item}/"))).status for item in ("7", "007", "8")] == [200, 429, 200]


def test_before_routing_it_raises() -> None:
    """In the middleware of the whole app no request has parameters: the error says what to do."""
    with pytest.raises(ConfigurationError, match=r'Rule\("/items/\{id\}", \.\.\., key=path_param\(\'id\'\)\)'):
        path_param("id").of(http("/items/7"))


def test_a_route_without_the_parameter_has_no_key() -> None:
    """One key function may serve several routes."""
    assert path_param("id").of(http(path_params={"name": "x"})) is None
    assert [path_param("id").of(http(path_params={"id": each})) for each in (7, 1.5)] == ["7", "1.5"]
