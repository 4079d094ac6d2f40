"""Watches the overrides of a store for this process, and notifies the subscribers of changes."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from threading import Lock
from typing import Any, Protocol
from weakref import WeakSet

from ..errors import StoreError
from ..stores import ByStore, Store
from ..stores.documents import Documents, documents
from ..stores.shared_time import shared_time
from ..waiting.background_loop import reset_in_child
from .override_document import EMPTY, NAME, Document, Override, unpacked
from .repeating import EVERY, Repeating

logger = logging.getLogger("asgi_ratelimit")

_SHORTEST = 0.01
"""The least seconds between two runs."""


NO_OVERRIDES: Mapping[str, Override] = {}


class Subscriber(Protocol):
    """An object with limits that can be overridden by their names. It is held weakly."""

    def limit_texts(self) -> Mapping[str, str]:
        """The program's own setting of each of its limits, as text by name."""
        ...

    def overrides_changed(self) -> None:
        """Apply ``live_overrides``, from any thread."""
        ...


class Watch(Repeating):
    """The overrides of one store, in this process: read once a second if another process may have changed them.

    In the memory of this process, all changes come from here, so only the end of an override has to be watched for.
    """

    def __init__(self, store: Store, shared: Documents) -> None:
        super().__init__(shared.aclose)
        self._documents, self.time = shared, shared_time(store)
        self._in_process = store.in_process
        self._subscribers: WeakSet[Any] = WeakSet()
        self._document: Document = EMPTY
        self._content: bytes | None = None
        self._receipts = 0
        self._failure = ""
        self.live = NO_OVERRIDES
        """The overrides that apply now: another object after each change."""
        self._is_used = True
        when_used = getattr(store, "when_used", None)
        if when_used is not None:
            self._is_used = False
            when_used(self._store_is_used, self._store_is_closed)

    @property
    def now(self) -> float:
        """The Unix time of the store, as of the last query."""
        return self.time.now_us() / 1e6

    @property
    def is_needed(self) -> bool:
        """Whether there are subscribers to notify of a change that may come."""
        if not self._subscribers:
            return False
        return self._next_end() < math.inf if self._in_process else self._is_used

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify a subscriber of each change, and of the overrides that already apply."""
        with self._lock:
            self._subscribers.add(subscriber)
            if self.live:
                self._notify([subscriber])
        self.start()

    def names(self) -> set[str]:
        """The names of all limits of this process."""
        return {name for each in list(self._subscribers) for name in each.limit_texts()}

    def received(self, content: bytes | None) -> None:
        """Apply a document that a process of this store has written. Raises ``ValueError`` for anything else."""
        with self._lock:
            self._receipts += 1
            if content != self._content:
                self._document, self._content = unpacked(content), content
            self._update()
        self.start()

    async def written(self, content: bytes | None) -> None:
        """Apply what this process, including its other threads, has written, if nobody reads it again."""
        self.received(content)
        while self._in_process and (latest := await self._documents.read(NAME)) != content:
            self.received(content := latest)

    async def run(self) -> float:
        """Read the document, and apply the changes."""
        if self._in_process:
            with self._lock:
                self._update()
        else:
            await self._read()
        return max(min(self._next_end() - self.now, EVERY), _SHORTEST)

    def reset(self) -> None:
        """Start afresh in a forked child, in which a remote store reports when it is used again."""
        self._is_used = self._in_process
        super().reset()

    def _store_is_used(self) -> None:
        self._is_used = True
        self.start()

    async def _store_is_closed(self) -> None:
        self._is_used = False
        await self.end()

    async def _read(self) -> None:
        receipts = self._receipts
        try:
            await self.time.look()
            content = await self._documents.read(NAME)
            if receipts == self._receipts:  # otherwise this process knows more by now
                self.received(content)
        except (StoreError, ValueError) as error:
            self._failed(error)
        else:
            self._failure = ""

    def _failed(self, error: Exception) -> None:
        """Log a failure once, until another one occurs; the current overrides stay."""
        if type(error).__name__ != self._failure:
            self._failure = type(error).__name__
            level = logging.INFO if isinstance(error, StoreError) else logging.ERROR  # the store logs it itself
            logger.log(level, "the overrides cannot be read, and stay as they are: %s", error)
        with self._lock:
            self._update()

    def _next_end(self) -> float:
        """The time when the next override ends."""
        return min([each.until for each in self.live.values() if each.until is not None], default=math.inf)

    def _update(self) -> None:
        now = self.now
        live = {name: each for name, each in self._document.overrides.items() if each.lives(now)}
        if live == self.live:
            return
        before, self.live = self.live, live
        subscribers = list(self._subscribers)
        self._notify(subscribers)
        texts: dict[str, str] = {}
        for each in subscribers:
            texts.update(each.limit_texts())
        for name in [name for name in {**before, **live} if name in texts and before.get(name) != live.get(name)]:
            self._log(name, texts[name], before.get(name), live.get(name))

    def _notify(self, subscribers: list[Subscriber]) -> None:
        for each in subscribers:
            try:
                each.overrides_changed()
            except Exception:
                logger.exception("the overrides cannot be applied to %r", each)

    def _log(self, name: str, own: str, before: Override | None, after: Override | None) -> None:
        """Log one line for each change of a limit that this process has."""
        texts = [own if each is None else each.text for each in (before, after)]
        if after is None:
            latest = next((each for each in reversed(self._document.history) if each.name == name), None)
            is_unset = latest is not None and latest.after is None
            by = latest.by if is_unset and latest is not None else None
            is_over = before is not None and not before.lives(self.now)
            ending = "" if is_unset else f", because {'its time is over' if is_over else 'the store has it no more'}"
        else:
            by = after.by
            ending = "" if after.until is None else f" for {math.ceil(after.until - self.now)} s"
        logger.warning("%s: %s -> %s%s%s", name, *texts, ending, "" if by is None else f", by {by}")


class _Watches:
    """The watches of all stores of this process."""

    def __init__(self) -> None:
        self._watches: ByStore[Watch] = ByStore()
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        self._lock = Lock()

    def get(self, store: Store) -> Watch | None:
        return self._watches.get(store)

    def of(self, store: Store) -> Watch:
        with self._lock:
            watch = self._watches.get(store)
            if watch is None:
                watch = self._watches[store] = Watch(store, documents(store))
            return watch


_watches = _Watches()


def watch_of(store: Store) -> Watch:
    """The one watch of a store. Raises ``ConfigurationError`` for a store without documents."""
    return _watches.of(store)


def subscribe(store: Store, subscriber: Subscriber) -> None:
    """Notify a subscriber of the overrides of a store, while it lives; a store without documents has none."""
    if getattr(store, "documents", None) is not None:
        watch_of(store).subscribe(subscriber)


def live_overrides(store: Store) -> Mapping[str, Override]:
    """The overrides of a store that apply now, by name, as this process knows them."""
    watch = _watches.get(store)
    return NO_OVERRIDES if watch is None else watch.live


def names_of_limits(store: Store) -> set[str]:
    """The names of the limits that this process has on a store; none for a store without documents."""
    watch = _watches.get(store)
    return set() if watch is None else watch.names()
