"""Values that this process keeps for each store: by the identity of the store, for as long as it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import ref

T = TypeVar("T")
F = TypeVar("F", bound="asyncio.Future[Any]")

LONGEST = 1.0
"""How many seconds a caller that is cancelled, or one that closes a store, waits at most for what is given back."""


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


_under_way: dict[asyncio.Future[Any], int] = {}
"""What goes on although its caller may be gone, and the ``id`` of its store.

An event loop holds only weak references to its tasks.
"""


def keep(store: Any, future: F) -> F:
    """Keep a task or future of a store until it is done; returns it."""
    _under_way[future] = id(store)
    future.add_done_callback(_forget)
    return future


def _forget(future: asyncio.Future[Any]) -> None:
    _under_way.pop(future, None)


async def see_all_through(store: Any) -> None:
    """Wait until all is done that is under way for a store on this event loop of asyncio, and what follows from it."""
    try:
        loop, identity = asyncio.get_running_loop(), id(store)
    except RuntimeError:  # another one runs
        return
    await until_done(
        lambda: [each for each, of in list(_under_way.items()) if of == identity and each.get_loop() is loop]
    )


UnderWay: TypeAlias = Callable[[], Collection["asyncio.Future[Any]"]]


async def until_done(under_way: UnderWay) -> None:
    """Wait until nothing is ``under_way`` any more, but not for long; nothing is cancelled."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST
    while pending := [each for each in under_way() if not each.done()]:
        if loop.time() >= until:
            return
        await asyncio.wait(pending, timeout=until - loop.time())


async def until_done_in_any_case(under_way: UnderWay) -> None:
    """As ``until_done``, for a task of its own: for as long as it takes; and if that is cancelled, for a while more."""
    try:
        while pending := [each for each in under_way() if not each.done()]:
            await asyncio.wait(pending)
    except asyncio.CancelledError:
        await until_done(under_way)


def reference(store: Any, when_gone: Callable[[Any], None] | None = None) -> Callable[[], object]:
    """A weak reference to a store, or a strong one to a store of a class without weak references."""
    try:
        return ref(store, when_gone)
    except TypeError:
        return lambda: store
