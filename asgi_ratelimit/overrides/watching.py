"""Watches the overrides of a store for this process, and applies them to the limits of their names."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from ..algorithms import unused
from ..clock import SystemClock
from ..counts.ticker import EVERY, Close, Ticker
from ..decision import Decision, Take
from ..errors import StoreError
from ..logs import FailureLog
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import Quota
from ..stores import ByStore, Store
from ..stores.documents import documents, shared_time
from ..waiting import background_loop, reset_in_child
from .document import EMPTY, NAME, Document, Override, unpacked

logger = logging.getLogger("asgi_ratelimit")

_SHORTEST = 0.01
"""The least seconds between two looks."""

NO_OVERRIDES: Mapping[str, Override] = {}

ReadQuotas: TypeAlias = Callable[[QuotaLike], tuple[Quota, ...]]


class Repeating(Ticker):
    """Work that ``run`` does on the background loop, again and again, while it is needed.

    It is done there whichever event loop or thread needs it, so that it lives longer than any of them.
    """

    def __init__(self, close: Close) -> None:
        super().__init__(close)
        reset_in_child(self)

    @property
    def is_needed(self) -> bool:
        """Whether the work has to begin."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin, unless the work is done already, or not needed. Thread-safe."""
        if self.is_needed:
            self.start_on(background_loop.loop(), is_lasting=True)

    def reset(self) -> None:
        """Start afresh in a forked child, if the work is needed there."""
        self.begin_anew()
        self.start()


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
    Raises ``ConfigurationError`` for a store without documents.
    """

    def __init__(self, store: Store) -> None:
        self._documents = documents(store)
        super().__init__(self._documents.aclose)
        self.time = shared_time(store)
        self.live = NO_OVERRIDES
        """The overrides that apply now: another object after each change."""
        self._in_process = store.in_process
        self._subscribers: WeakSet[Any] = WeakSet()
        self._document: Document = EMPTY
        self._content: bytes | None = None
        self._receipts = 0
        self._failures = FailureLog()
        when_used = getattr(store, "when_used", None)
        self._is_used = when_used is None
        if when_used is not None:
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

    def limit_texts(self) -> dict[str, str]:
        """The program's own setting of each limit of this process, as text by name."""
        return {name: text for each in list(self._subscribers) for name, text in each.limit_texts().items()}

    def received(self, content: bytes | None) -> None:
        """Apply a document that a process of this store has written. Raises ``ValueError`` for anything else."""
        with self._lock:
            self._receipts += 1
            if content != self._content:
                document = unpacked(content)
                if self._in_process and document.version < self._document.version:
                    return  # another thread was faster, and nobody reads it again
                self._document, self._content = document, content
            self._update()
        self.start()

    async def run(self) -> float:
        """Read the document, and apply the changes."""
        receipts = self._receipts
        try:
            if not self._in_process:
                await self.time.look()
                content = await self._documents.read(NAME)
                if receipts == self._receipts:  # otherwise this process knows more by now
                    self.received(content)
        except StoreError:
            """The store logs it; the current overrides stay."""
        except ValueError as error:
            self._failures.report("the overrides cannot be read, and stay as they are", error)
        with self._lock:
            self._update()
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
        self.start()  # it may be used again by now

    def _next_end(self) -> float:
        """The time when the next override ends."""
        return min([each.until for each in self.live.values() if each.until is not None], default=math.inf)

    def _update(self) -> None:
        """Apply the overrides of now, and log each change of a limit that this process has."""
        now = self.now
        live = {name: each for name, each in self._document.overrides.items() if each.lives(now)}
        if live == self.live:
            return
        before, self.live = self.live, live
        self._notify(list(self._subscribers))
        texts = self.limit_texts()
        for name in {**before, **live}:
            if name in texts and before.get(name) != live.get(name):
                self._log_change(name, texts[name], before.get(name), live.get(name))

    def _notify(self, subscribers: list[Subscriber]) -> None:
        for each in subscribers:
            try:
                each.overrides_changed()
            except Exception:
                logger.exception("the overrides cannot be applied to %r", each)

    def _log_change(self, name: str, own: str, before: Override | None, after: Override | None) -> None:
        texts = [own if each is None else " ".join(each.text.split()) for each in (before, after)]
        by, ending = None if after is None else after.by, ""
        if after is not None and after.until is not None:
            ending = f" for {math.ceil(after.until - self.now)} s"
        elif after is None and before is not None and not before.lives(self.now):
            ending = ", because its time is over"
        elif after is None:
            by = next((change.by for change in reversed(self._document.history) if change.name == name), None)
        logger.warning("%s: %s -> %s%s%s", name, *texts, ending, "" if by is None else f", by {by}")


_watches: ByStore[Watch] = ByStore()
_lock = Lock()


def watch_of(store: Store) -> Watch:
    """The one watch of a store. Raises ``ConfigurationError`` for a store without documents."""
    watch = _watches.get(store)
    if watch is None:
        with _lock:
            watch = _watches.get(store)
            if watch is None:
                watch = _watches[store] = Watch(store)
    return watch


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
    return set() if watch is None else {*watch.limit_texts()}


class LiveQuotas:
    """The current quotas of one name on one store: those of the program, or those of an override.

    ``own`` are the program's quotas, and ``quotas`` those that apply; ``word`` is ``"shadow"`` or ``"off"``. ``quotas``
    and ``word`` are replaced when an override begins or ends. ``read`` makes quotas from an override.
    """

    __slots__ = ("__weakref__", "_name", "_read", "_store", "own", "quotas", "word")

    def __init__(self, store: Store, name: str, own: tuple[Quota, ...], read: ReadQuotas = as_quotas) -> None:
        self._store = store
        self._name = name
        self._read = read
        self.own = self.quotas = own
        self.word: str | None = None
        subscribe(store, self)

    def renewed(self, take: Take) -> Take:
        """A take under the quotas of the same names that now apply; charges of other names keep their quotas."""
        if all(charge.quota in self.quotas for charge in take.charges):
            return take
        now = {(quota.name, quota.kind): quota for quota in self.quotas}
        charges = [
            replace(charge, quota=now.get((charge.quota.name, charge.quota.kind), charge.quota))
            for charge in take.charges
        ]
        return replace(take, charges=tuple(charges))

    def limit_texts(self) -> Mapping[str, str]:
        """The program's quotas, as text by name."""
        return {self._name: limit_text(self.own)}

    def overrides_changed(self) -> None:
        """Apply ``live_overrides``."""
        override = live_overrides(self._store).get(self._name)
        self.word = None if override is None else override.word
        has_quotas = override is not None and override.word is None
        self.quotas = quotas_under(override, self.own, self._read) if has_quotas and override else self.own


def quotas_under(override: Override, own: Sequence[Quota], read: ReadQuotas = as_quotas) -> tuple[Quota, ...]:
    """The quotas of an override that is not a word, which replace the ``own`` ones; ``read`` makes them from it.

    If one quota replaces one, it keeps its name, and so the usage under that name. Other quotas have the names that
    they state, or names after their periods.
    """
    quotas = read(override.quota)
    if len(quotas) == len(own) == 1:
        return (replace(quotas[0], name=own[0].name),)
    return quotas


def limit_text(quota: Sequence[Quota] | Callable[..., Any]) -> str:
    """The limit of a program as a log line shows it: quotas, a function of the request, or no limit."""
    if callable(quota):
        return f"{getattr(quota, '__name__', type(quota).__name__)}()"
    return as_text(quota) if quota else "no limit"


def counted(decision: Decision) -> Decision:
    """A decision that is counted and not enforced: allowed, whatever the store says."""
    if decision.allowed:
        return replace(decision, shadow=True)
    return replace(decision, allowed=True, wait_us=0.0, shadow=True, id=0)


def exempt(take: Take, store: Store) -> Decision:
    """The decision of a limit that is off: allowed, and nothing is charged."""
    now = float((store.clock or SystemClock()).now_us())
    return Decision(take, True, 0.0, [unused(charge.quota, now) for charge in take.charges], now)
