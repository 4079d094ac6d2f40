"""The report of a store with a server on each call, and the observers that receive it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from ..logs import FailureLog
from .by_store import reference


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call of a store to its server: ``size`` takes and other actions together, which took ``seconds``.

    ``store`` is the prefix of the store's keys. ``error`` is the reason why the call failed, if it did. ``is_out`` says
    whether the store, or a node of it, has been out since then, and ``ledger`` is the number of entries in its outage
    ledger.
    """

    store: str
    size: int
    seconds: float
    error: Exception | None
    is_out: bool
    ledger: int


class Observer(Protocol):
    """Something that is called with each call of a store, in the event loop, so it must not block."""

    def store_called(self, call: StoreCall, /) -> object:
        """A call has ended."""
        ...


class Observers:
    """The observers of one store, which are held weakly, if they can be. An exception of one is logged."""

    def __init__(self) -> None:
        self.references: list[Callable[[], object]] = []
        """The observers that were added; some of them may be gone."""
        self._log = FailureLog()
        self._lock = Lock()

    def add(self, observer: Observer) -> None:
        """Call an observer from now on, once for each call, however often it is added."""
        with self._lock:
            others = [each for each in self.references if each() is not None and each() is not observer]
            self.references = [*others, reference(observer)]

    def report(self, call: StoreCall) -> None:
        """A call has ended."""
        for each in self.references:
            observer = each()
            if observer is not None:
                try:
                    observer.store_called(call)  # type: ignore[attr-defined]  # it is an observer
                except Exception as error:  # noqa: BLE001  # it is the user's, and may raise anything
                    self._log.report(f"the hook {observer!r} failed", error, id(observer))
