"""What a process publishes besides its counts: its outbound queues, and what its transports have learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias
from weakref import WeakMethod

Row: TypeAlias = dict[str, Any]
"""What is published of one queue or bucket: values that JSON has."""


class OutboundSources:
    """Methods that say what is to be published of their objects now; they are held weakly."""

    def __init__(self) -> None:
        self._methods: list[WeakMethod[Callable[[], Iterable[Row]]]] = []

    def add(self, method: Callable[[], Iterable[Row]]) -> None:
        """Ask this method as well, for as long as its object lives."""
        self._methods.append(WeakMethod(method, self._methods.remove))

    def rows(self) -> Iterator[Row]:
        """What all of them say."""
        for reference in list(self._methods):
            method = reference()
            if method is not None:
                yield from method()


outbound_sources = OutboundSources()
"""Those of this process."""
