"""What is kept of a store: by its identity, and for as long as it lives."""

from __future__ import annotations

from typing import Any

import pytest

from asgi_ratelimit import MemoryStore
from asgi_ratelimit.stores import ByStore


class Unhashable:
    """A store that can be neither hashed nor compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError


class Slotted:
    """A store without weak references."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [MemoryStore, Unhashable, Slotted])
def test_each_store_has_its_own_value(kind: Any) -> None:
    """Whether or not two stores are equal."""
    values, one, other = ByStore[str](), kind(), kind()
    assert not values
    values[one] = "one"
    assert values
    assert [values.get(one), values.get(other)] == ["one", None]
    values[other] = "other"
    values[one] = "new"
    assert [values.get(one), values.get(other)] == ["new", "other"]


@pytest.mark.parametrize("kind", [MemoryStore, Unhashable])
def test_the_value_of_a_store_that_is_gone_is_gone(kind: Any) -> None:
    """At once, so a new store at the same address has none."""
    values = ByStore[str]()
    for _ in range(100):
        store = kind()
        assert values.get(store) is None
        values[store] = "value"
        values[store] = "another"
        del store
        assert not values
