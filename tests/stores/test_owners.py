"""Owners: two limits of one name on one store must agree on their quotas, for as long as both are alive."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, FixedWindow, MemoryStore, TokenBucket
from asgi_ratelimit.stores.owners import register

TEN = TokenBucket(10, 60)
TWENTY = TokenBucket(20, 60)


class Owner:
    """A middleware or a dependency, as far as this registry is concerned."""


class PlainStore(MemoryStore):
    """A store that can be neither hashed nor compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError


class SlottedStore:
    """A store without weak references."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [MemoryStore, PlainStore, SlottedStore])
def test_two_quotas_of_one_name_are_refused(kind: Any) -> None:
    """On any store, with both quotas and the remedy in the error."""
    store, one, other = kind(), Owner(), Owner()
    register(store, one, [("api", TEN)])
    with pytest.raises(ConfigurationError, match=r'limit=10.*limit=20.*name="uploads"'):
        register(store, other, [("api", TWENTY)])


@pytest.mark.parametrize("kind", [MemoryStore, PlainStore, SlottedStore])
def test_other_names_other_quotas_and_other_stores_are_no_conflict(kind: Any) -> None:
    """Equal quotas share their buckets on purpose."""
    store, elsewhere, owners = kind(), kind(), [Owner() for _ in range(5)]
    register(store, owners[0], [("api", TEN)])
    register(store, owners[1], [("api", TokenBucket(10, 60))])
    register(store, owners[2], [("uploads", TWENTY)])
    register(store, owners[3], [("api", FixedWindow(5, 3600))])
    register(elsewhere, owners[4], [("api", TWENTY)])


def test_all_owners_of_a_name_count() -> None:
    """When the last of several is gone, the others still own it."""
    store, first, last = MemoryStore(), Owner(), Owner()
    register(store, first, [("api", TEN)])
    register(store, last, [("api", TEN)])
    del last
    with pytest.raises(ConfigurationError):
        register(store, Owner(), [("api", TWENTY)])


def test_an_owner_may_change_its_quota() -> None:
    """A limit that is registered again replaces what it said before."""
    store, owner, other = MemoryStore(), Owner(), Owner()
    register(store, owner, [("api", TEN)])
    register(store, owner, [("api", TWENTY)])
    register(store, other, [("api", TWENTY)])


def test_an_owner_in_a_reference_cycle_that_is_gone_owns_nothing() -> None:
    """Even before the garbage collector has run by itself."""
    store = MemoryStore()
    gc.disable()
    try:
        for limit in range(1, 20):
            owner: Any = Owner()
            owner.itself = owner
            register(store, owner, [("api", TokenBucket(limit, 60))])
            del owner
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", [MemoryStore, SlottedStore])
def test_a_store_without_owners_is_gone(kind: Any) -> None:
    """A new store at the address of one that is gone has no owners, and a living owner of the old one is none of it."""
    owner = Owner()
    for limit in range(1, 100):
        register(kind(), owner, [("api", TokenBucket(limit, 60))])
        register(kind(), Owner(), [("api", TokenBucket(limit + 1, 60))])
