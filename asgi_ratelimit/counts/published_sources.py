"""What a process publishes besides its counts: its outbound queues, and what its transports have learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias
from weakref import ref

Row: TypeAlias = dict[str, Any]
"""The published values of one queue or bucket; JSON can represent all of them."""


class OutboundSource(Protocol):
    """An object with queues or limits that are published."""

    def outbound_rows(self) -> Iterable[Row]:
        """The rows to publish now; called from any thread."""
        ...


class OutboundSources:
    """The sources of this process; they are held weakly."""

    def __init__(self) -> None:
        self._sources: list[ref[OutboundSource]] = []

    def add(self, source: OutboundSource) -> None:
        """Publish the rows of this object too, for as long as it lives."""
        self._sources.append(ref(source, self._sources.remove))

    def rows(self) -> Iterator[Row]:
        """The rows of all of them."""
        for reference in list(self._sources):
            source = reference()
            if source is not None:
                yield from source.outbound_rows()


outbound_sources = OutboundSources()
"""Those of this process."""
