"""Live overrides: limits that are changed by their names while programs run, for all processes on one store.

All overrides of a store are one document, with its history. Each process watches it, and applies it to its limits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from threading import RLock
from typing import Any, Self, TypeAlias, get_args
from weakref import WeakSet

from .algorithms.take import unused
from .background import EVERY, BesideStore
from .clock import SystemClock
from .decision import Decision, Take
from .errors import ConfigurationError, QuotaError, StoreError, shows_use
from .logs import FailureLog, logger
from .quota_text import QuotaLike, as_quotas, as_text
from .quotas import Quota
from .stores import ByStore, Store, store_of_limits
from .stores.documents import MAX_BYTES

# The name of the document, and the version of its format.
NAME, FORMAT = "overrides", 1

# The words of an override instead of a quota: decided and counted, but not enforced; not limited at all.
SHADOW, OFF = WORDS = ("shadow", "off")

# The number of changes that are kept.
LATEST_CHANGES = 100

# Characters of the longest text of a quota: every process reads it once a second.
LONGEST_QUOTA = 1024

# Characters of the longest name, both of a limit and of its author.
LONGEST_TEXT = 256

# Seconds of the longest life of an override, and the latest Unix time when one may end, in the year 4821.
LONGEST_LIFE, LATEST = 100 * 366 * 86_400, 9e10

# Characters that could forge a line of a log, or reach a terminal; and half characters.
_NOT_SHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_KINDS: Mapping[str, type[Quota]] = {kind.__name__: kind for kind in get_args(Quota)}


@dataclass(frozen=True, slots=True)
class Override:
    """What applies under a name instead of the program's own limit: a quota, ``"shadow"`` or ``"off"``.

    ``quota`` is the text that was set, or quotas. ``until`` is the Unix time when it ends, or ``None`` for never.
    ``at`` is the time when it was set, and ``by`` is its author.
    """

    quota: str | tuple[Quota, ...]
    until: float | None = None
    by: str | None = None
    at: float = 0.0

    @property
    def word(self) -> str | None:
        """``"shadow"`` or ``"off"``, if it is one of them."""
        return self.quota if isinstance(self.quota, str) and self.quota in WORDS else None

    @property
    def text(self) -> str:
        """The quota as text."""
        return self.quota if isinstance(self.quota, str) else as_text(self.quota)

    def lives(self, now: float) -> bool:
        """Whether it applies at a Unix time."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what applies under a name: ``before`` and ``after`` are overrides, or ``None`` for none.

    For an action on a ``key`` they are the same, and ``action`` says what was done: ``"blocked for 1 hour"``.
    """

    name: str
    at: float
    by: str | None
    before: Override | None
    after: Override | None
    key: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """All overrides by name, and the latest changes, the newest one last; ``version`` counts the changes."""

    version: int
    overrides: Mapping[str, Override]
    history: tuple[Change, ...]

    def changed(self, name: str, override: Override | None, by: str | None, now: float, *action: str) -> Document:
        """The document with another override, or none, under a name; those that have ended are left out.

        With an ``action``, which is a key and what was done to it, the override stays.
        """
        overrides = {each: old for each, old in self.overrides.items() if old.lives(now)}
        before = overrides.pop(name, None)
        after = before if action else override
        if after is not None:
            overrides[name] = after
        history = (*self.history, Change(name, now, by, before, after, *action))[-LATEST_CHANGES:]
        return Document(self.version + 1, overrides, history)

    def packed(self) -> bytes:
        """The document as bytes. Raises ``ConfigurationError`` if it is too large."""
        packed = json.dumps({"format": FORMAT, **_named(self)}, separators=(",", ":"), default=_named).encode()
        if len(packed) > MAX_BYTES:
            raise ConfigurationError(f"{len(self.overrides)} overrides are too many for a document: unset some")
        return packed


def _named(value: Any) -> dict[str, Any]:
    """A document, an override, a change, or a quota with its kind, as JSON has it."""
    named = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
    return {"kind": type(value).__name__, **named} if type(value) in _KINDS.values() else named


EMPTY = Document(0, {}, ())


def unpacked(content: bytes | None) -> Document:
    """The document in these bytes; an empty one for ``None``. Raises ``ValueError`` for anything else."""
    if content is None:
        return EMPTY
    try:
        read = json.loads(content)
        if read["format"] != FORMAT:
            raise ValueError(f"it has the format {read['format']!r} instead of {FORMAT}: a newer version wrote it")
        overrides = {checked_text(name): _override(**each) for name, each in read["overrides"].items()}
        return Document(int(read["version"]), overrides, tuple([_change(**each) for each in read["history"]]))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the document {NAME!r} does not hold overrides: {error!r}") from error


def _override(quota: Any, until: Any, by: Any, at: Any) -> Override:
    quotas = quota if isinstance(quota, str) else tuple([_KINDS[each.pop("kind")](**each) for each in quota])
    return Override(checked_quota(quotas), None if until is None else _time(until), checked_by(by), _time(at))


def _change(name: Any, at: Any, by: Any, before: Any, after: Any, key: Any = None, action: Any = None) -> Change:
    old, new = [None if each is None else _override(**each) for each in (before, after)]
    key = None if key is None else str(key)
    return Change(checked_text(name), _time(at), checked_by(by), old, new, key, checked_by(action))


def _time(value: Any) -> float:
    if not 0 <= value <= LATEST:  # false for NaN, too
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def checked_quota(quota: QuotaLike) -> str | tuple[Quota, ...]:
    """The quota of an override: a text or a word as it is, anything else as quotas. Raises ``QuotaError``."""
    if not isinstance(quota, str):
        return as_quotas(quota)
    if len(quota) > LONGEST_QUOTA:
        raise QuotaError(f'at most {LONGEST_QUOTA} characters fit, not {len(quota)}, {quota!r:.100}: "10/minute"')
    if quota not in WORDS:
        as_quotas(quota)
    return quota


def checked_text(name: str, what: str = 'name="login"') -> str:
    """``name``, if it is a text that can be shown; ``ConfigurationError`` otherwise, which shows ``what`` is right."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_TEXT or _NOT_SHOWN.search(name):
        problem = f"must be a text of 1 to {LONGEST_TEXT} characters that can be shown, not {name!r:.100}"
        raise ConfigurationError(f"{what.partition('=')[0]} {problem}: {what}")
    return name


def checked_by(by: str | None) -> str | None:
    """The same for an author, or ``None``."""
    return None if by is None else checked_text(by, 'by="alice"')


# What applies in this process


NO_OVERRIDES: Mapping[str, Override] = {}

# Makes quotas from an override.
ReadQuotas: TypeAlias = Callable[[QuotaLike], tuple[Quota, ...]]


class Watch(BesideStore):
    """The overrides of one store, in this process: read once a second if another process may have changed them.

    In the memory of this process, all changes come from here, so only the end of an override has to be watched for.
    """

    def __init__(self, store: Store) -> None:
        # The overrides that apply now: another object after each change.
        self.live = NO_OVERRIDES
        self._subscribers: WeakSet[Any] = WeakSet()
        self._document: Document = EMPTY
        self._content: bytes | None = None
        self._failures = FailureLog()
        self._clock = store.clock or SystemClock()
        super().__init__(store)

    def reset(self) -> None:
        """Start afresh in a forked child; a limit that is off there uses no store, which would begin to watch."""
        self._lock = RLock()
        super().reset()
        if self._lets_all_pass():
            self.start()

    async def end(self) -> None:
        """Stop watching: from now on, nobody would see that a limit which is off is on again."""
        await super().end()
        with self._lock:
            if self._lets_all_pass():
                self.live = {name: each for name, each in self.live.items() if each.word != OFF}
                self._notify(list(self._subscribers))

    def _lets_all_pass(self) -> bool:
        return any(each.word == OFF for each in self.live.values())

    @property
    def now(self) -> float:
        """The Unix time, by which overrides begin and end."""
        return self._clock.now_us() / 1e6

    def subscribe(self, subscriber: Any) -> None:
        """Notify a subscriber of each change, and of the overrides that already apply, while it lives.

        Its ``overrides_changed()`` applies ``live``, from any thread. Its ``limit_texts()`` are the program's own
        settings of its limits, as text by name.
        """
        with self._lock:
            self._subscribers.add(subscriber)
            if self.live:
                self._notify([subscriber])

    def limit_texts(self) -> dict[str, str]:
        """The program's own setting of each limit of this process, as text by name."""
        with self._lock:  # another thread may subscribe meanwhile
            return _texts_of(list(self._subscribers))

    def received(self, content: bytes | None) -> None:
        """Apply a document that this process has written."""
        self._apply(content)
        if self._lets_all_pass() or (self.in_process and self._next_end() < math.inf):
            self.start()

    def _apply(self, content: bytes | None) -> None:
        """Apply a document that a process of this store has written; one that cannot be read changes nothing."""
        with self._lock:
            try:
                document = self._document if content == self._content else unpacked(content)
                if not self.in_process or document.version >= self._document.version:
                    self._document, self._content = document, content  # another thread was not faster
            except ValueError as error:
                self._failures.report("the overrides cannot be read, and stay as they are", error)
            self._update()

    async def run(self) -> float:
        """Read the document, and apply the changes; in memory, go on until no override has an end."""
        content = before = self._content
        if not self.in_process:
            with suppress(StoreError):  # the store logs it; the current overrides stay
                content = await self.documents.read(NAME)
        if self._content is not before:  # this process has changed it meanwhile
            content = self._content
        self._apply(content)
        left = self._next_end() - self.now
        return math.inf if self.in_process and left == math.inf else max(min(left, EVERY), 0.01)

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
        applied = self._notify(list(self._subscribers))
        latest = {change.name: change for change in self._document.history if change.action is None}
        for name, own in _texts_of(applied).items():
            old, new = before.get(name), live.get(name)
            if old != new:
                texts = [own if each is None else " ".join(each.text.split()) for each in (old, new)]
                author = latest[name].by if name in latest and latest[name].after == new else None
                logger.warning("%s: %s -> %s%s", name, *texts, "" if author is None else f", by {author}")

    def _notify(self, subscribers: list[Any]) -> list[Any]:
        """Let subscribers apply the overrides; those that have done so."""
        applied = []
        for each in subscribers:
            try:
                each.overrides_changed()
                applied.append(each)
            except Exception as error:  # noqa: BLE001  # an override may be none for these limits
                names = ", ".join(map(repr, each.limit_texts()))
                self._failures.report(f"the overrides cannot be applied to {names}", error, of=names)
        return applied


def _texts_of(subscribers: Iterable[Any]) -> dict[str, str]:
    return {name: text for each in subscribers for name, text in each.limit_texts().items()}


# The one watch of a store.
watch_of: ByStore[Watch] = ByStore(Watch)


def quotas_under(override: Override, own: Sequence[Quota], read: ReadQuotas = as_quotas) -> tuple[Quota, ...]:
    """The quotas of an override that is not a word, which replace the ``own`` ones; ``read`` makes them from it.

    If one quota replaces one, it keeps its name, and so the usage under that name. Other quotas have the names that
    they state, or names after their periods.
    """
    quotas = read(override.quota)
    if len(quotas) == len(own) == 1:
        return (replace(quotas[0], name=own[0].name),)
    return quotas


def named_quotas(quotas: Sequence[Quota], *mappings: Mapping[str, Any] | None) -> tuple[Quota, ...]:
    """The quotas that every mapping names."""
    return tuple([quota for quota in quotas if all(each is None or quota.name in each for each in mappings)])


def not_applied(name: str, live: Sequence[Quota], own: Sequence[Quota]) -> str:
    """The text to log if keys or costs name none of an override's quotas, so that the ``own`` ones are charged."""
    own_names, live_names = [", ".join(repr(quota.name) for quota in quotas) for quotas in (own, live)]
    right = [replace(quota, name=instead.name) for quota, instead in zip(live, own)]
    text = f'the override "{as_text(live)}" of the limit {name!r} was not applied to a call for the quotas {own_names}'
    return f"{text}: its own are named {live_names}. Name those: await overrides.set({name!r}, {right})"


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


# Changes


# How often a change is tried while others also change the document.
_ATTEMPTS = 1000


class Overrides:
    """Changes limits by their names while programs run: in all processes that share the store, within a second.

    A name is that of a ``Rule``, a ``RateLimit``, a ``Limiter``, a paced function or transport, or, for its own quota,
    a ``RateLimitMiddleware``. ``store`` is a store or its URL. What was used stays used by a quota of the same kind.
    Each method raises ``StoreError`` if the store does not answer. Raises ``ConfigurationError`` for a store that
    shares nothing.
    """

    @shows_use('Overrides("redis://localhost")')
    def __init__(self, store: Store | str) -> None:
        self._store = store_of_limits(store, "Overrides(store)")
        self._owns_store = isinstance(store, str)
        self._watch = watch_of(self._store)

    async def set(self, name: str, quota: QuotaLike, *, seconds: float | None = None, by: str | None = None) -> None:
        """Let ``quota`` apply under a name, for this many ``seconds``, or until ``unset``.

        It is a quota as text or as an object, or several. ``"shadow"`` decides and counts, but enforces nothing;
        ``"off"`` does not limit at all. ``by`` is the author that the history shows. Raises ``QuotaError`` or
        ``ValueError`` for invalid arguments, and then changes nothing.
        """
        if seconds is not None and not (isinstance(seconds, (int, float)) and 0 < seconds <= LONGEST_LIFE):
            raise ValueError(f"seconds must be above 0 and at most 100 years, or None, not {seconds!r}: seconds=3600")
        name, override = checked_text(name), Override(checked_quota(quota), None, checked_by(by))
        now = self._watch.now
        await self._change(name, replace(override, at=now, until=None if seconds is None else now + seconds), by)

    async def unset(self, name: str, *, by: str | None = None) -> bool:
        """Let the limits of the programs apply again, and return whether an override applied."""
        return await self._change(checked_text(name), None, checked_by(by))

    async def note(self, name: str, key: str, action: str, *, by: str | None = None) -> None:
        """Add an action on a key to the history, such as ``"blocked for 1 hour"``; no limit changes."""
        done = checked_text(action, 'action="reset"')
        await self._change(checked_text(name), None, checked_by(by), key[:LONGEST_TEXT], done)

    async def all(self) -> dict[str, Override]:
        """The overrides that apply now, by name."""
        _, document = await self._read()
        return {name: each for name, each in document.overrides.items() if each.lives(self._watch.now)}

    async def history(self) -> list[Change]:
        """The latest changes, at most 100, the newest one first."""
        return list(reversed((await self._read())[1].history))

    async def aclose(self) -> None:
        """Close the store, if it was given as a URL."""
        if self._owns_store:
            await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def _read(self) -> tuple[bytes | None, Document]:
        """The content of the document, and the parsed document."""
        content = await self._store.documents.read(NAME)
        try:
            return content, unpacked(content)
        except ValueError as error:
            raise StoreError(f"{error}: delete it, its key ends in :documents:{NAME}") from error

    async def _change(self, name: str, override: Override | None, by: str | None, *action: str) -> bool:
        """Change the document, which others may also change; return whether there was an override before."""
        for _ in range(_ATTEMPTS):
            content, document = await self._read()
            now = self._watch.now
            before = document.overrides.get(name)
            had_one = before is not None and before.lives(now)
            if override is None and not had_one and not action:
                return False
            packed = document.changed(name, override, by, now, *action).packed()
            if await self._store.documents.replace(NAME, content, packed):
                self._watch.received(packed)
                return had_one
        raise StoreError(f"the overrides were changed {_ATTEMPTS} times by others meanwhile")
