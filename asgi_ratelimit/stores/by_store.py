"""Values that this process keeps for each store: by the identity of the store, for as long as it lives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class ByStore(Generic[T]):
    """Values by store. A store need be neither hashable nor comparable; it is held weakly, if it can be."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Callable[[], object], T]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def get(self, store: Any) -> T | None:
        """The value of a store, if it has one."""
        entry = self._values.get(id(store))
        return None if entry is None or entry[0]() is not store else entry[1]

    def values(self) -> list[T]:
        """The values of all stores that live."""
        return [value for reference, value in list(self._values.values()) if reference() is not None]

    def __setitem__(self, store: Any, value: T) -> None:
        self._values[id(store)] = reference(store, partial(self._remove, id(store))), value

    def _remove(self, identity: int, reference: Callable[[], object]) -> None:
        entry = self._values.get(identity)
        if entry is not None and entry[0] is reference:  # not that of a new store at the same address
            del self._values[identity]


before_closing: ByStore[Callable[[], Awaitable[None]]] = ByStore()
"""A function that is awaited before a store closes its connections, if it has any; it must not refer to the store."""


def reference(store: Any, when_gone: Callable[[Any], None] | None = None) -> Callable[[], object]:
    """A weak reference to a store, or a strong one to a store of a class without weak references."""
    try:
        return ref(store, when_gone)
    except TypeError:
        return lambda: store
