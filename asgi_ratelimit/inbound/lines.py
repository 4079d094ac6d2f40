"""What a request is charged to: the lines of its bill, and the bill itself."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..decision import Bucket, Charge, OnError, Take, checked_cost
from ..limiter import as_key
from ..quota_text import QuotaLike, as_quotas, parse_quotas
from ..quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .blocks import look
from .keys import KeyFunction, ScopeKey, client_ip
from .penalties import Penalty
from .rules import CostFunction, QuotaFunction, SettleFunction

logger = logging.getLogger("asgi_ratelimit")

Charged: TypeAlias = tuple[str | None, tuple[Charge, ...]]
"""The key of a line, if it has one, and what is charged for it."""

PATIENCE = 5.0
"""Seconds for which reading from a WebSocket may pause, at the most."""

Keys: TypeAlias = str | tuple[str | None, ...] | None
"""What the only key of a request's lines has found, or what each of them has."""

MAX_BILLS = 16_384
"""How many bills are remembered for each set of lines, at the most."""

Answers: TypeAlias = dict[int, Any]
"""What functions have answered for a request, by their identity: each is asked once."""


class Denied(Exception):
    """Raised within the package where a function failed and its rule says that nobody may pass then."""


@dataclass(slots=True, eq=False)
class Line:
    """What a request is charged to where a rule, or the middleware's own quota, applies: one line of its bill."""

    name: str
    quota: tuple[Quota, ...] | QuotaFunction
    key: KeyFunction
    cost: float | CostFunction = 1
    _: KW_ONLY
    shadow: bool = False
    on_error: OnError | None = None
    penalty: Penalty | None = None
    messages: tuple[Quota, ...] = ()
    """Quotas for what comes in over a WebSocket."""
    settle: SettleFunction | None = None
    counts: bool = False
    """Whether ``settle`` asks for the bytes that were sent."""
    failed: bool = field(init=False, default=False)
    """Whether one of its functions has failed, which is logged once."""

    @property
    def is_plain(self) -> bool:
        """Whether the scope alone tells what it comes to, without asking any function of the user's."""
        return isinstance(self.key, ScopeKey) and not callable(self.quota) and not callable(self.cost)

    def charges(self, key: str) -> tuple[Charge, ...]:
        """One charge for each quota of a plain line."""
        assert not callable(self.quota)
        assert not callable(self.cost)
        return tuple([Charge(quota, key, self.cost, self.name) for quota in self.quota])

    async def ask(self, connection: HTTPConnection, answers: Answers) -> Charged:
        """One charge for each quota, after asking functions; none where one of them says that it does not apply."""
        key = await _answer(self.key, connection, answers)
        if key is None:
            return None, ()
        quota = await _answer(self.quota, connection, answers) if callable(self.quota) else self.quota
        cost = await _answer(self.cost, connection, answers) if callable(self.cost) else self.cost
        key = as_key(key)
        if quota is None or cost == 0:
            return key, ()
        quotas, cost = quotas_of(quota) if callable(self.quota) else quota, checked_cost(cost)
        return key, tuple([Charge(each, key, cost, self.name) for each in quotas])

    def fail_to_settle(self, error: Exception) -> None:
        """Log once that the settle function of this line has failed."""
        self._log_once("requests stay charged as they were", error)

    def fail(self, error: Exception) -> None:
        """Log once that a function of this line has failed; raises ``Denied`` where nobody may pass then."""
        passes = "refused" if self.on_error == "deny" else "let through without it"
        self._log_once(f"requests are {passes}", error)
        if self.on_error == "deny":
            raise Denied from error

    def _log_once(self, outcome: str, error: Exception) -> None:
        if not self.failed:
            self.failed = True
            logger.error("a function of the rule %r failed, %s: %r", self.name, outcome, error, exc_info=error)


async def _answer(function: Any, connection: HTTPConnection, answers: Answers) -> Any:
    identity = id(function)
    if identity not in answers:
        answer = function(connection)
        answers[identity] = await answer if inspect.isawaitable(answer) else answer
    return answers[identity]


def quotas_of(quota: QuotaLike) -> tuple[Quota, ...]:
    """``as_quotas``, fast for what a function answers again and again."""
    if isinstance(quota, str):
        return _parsed(quota)
    return (quota,) if isinstance(quota, (TokenBucket, FixedWindow, RollingWindow)) else as_quotas(quota)


_parsed = lru_cache(maxsize=1024)(lambda text: as_quotas(parse_quotas(text)))


@dataclass(slots=True, eq=False)
class Due:
    """Charges of one line that are settled when the answer is known: their places in the take of that number."""

    line: Line
    take: int
    places: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Bill:
    """What one request is charged: the take that is enforced, if any, and then those of the shadow rules."""

    takes: tuple[Take, ...]
    is_enforced: bool
    """Whether the first take is no shadow rule's."""
    has_looks: bool = False
    """Whether some of its charges only ask whether a key is blocked."""
    dues: tuple[Due, ...] = ()
    """What is to be settled after the answer."""
    messages: Take | None = None
    """What each message is charged that comes in over a WebSocket."""
    is_usual: bool = field(init=False)
    """Whether it is one take that is enforced, and nothing else."""

    def __post_init__(self) -> None:
        self.is_usual = (
            self.is_enforced and len(self.takes) == 1 and not self.has_looks and not self.dues and not self.messages
        )


class Terms:
    """The lines that apply to a request, together: the same object each time for the same lines."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = tuple(lines)
        self.is_plain = all(line.is_plain for line in lines)
        self._keys = [key for key in dict.fromkeys(line.key for line in lines) if isinstance(key, ScopeKey)]
        self._key_of = self._keys[0].of if len(self._keys) == 1 else self._keys_of
        self._bills: dict[Keys, Bill | None] = {}
        self._by_peer: dict[str, Bill] = {}
        by_client = len(self._keys) == 1 and type(self._keys[0]) is client_ip
        self.bill: Callable[[Scope], Bill | None] = self._bill_by_peer if by_client else self._bill_by_keys
        """The bill of a request whose lines are all plain; ``None`` where none of them has a key.

        It is the same one each time for keys that come again soon.
        """

    def _bill_by_peer(self, scope: Scope) -> Bill | None:
        """Of clients that are no proxies, found at once: one look, for what most requests are."""
        client = scope.get("client")
        bill = self._by_peer.get(client[0]) if client else None
        if bill is not None:
            return bill
        bill = self._bill_by_keys(scope)
        if bill is not None and client and self._keys[0].is_direct(client[0]):  # type: ignore[attr-defined]
            if len(self._by_peer) >= MAX_BILLS:
                self._by_peer.clear()
            self._by_peer[client[0]] = bill
        return bill

    def _bill_by_keys(self, scope: Scope) -> Bill | None:
        try:
            keys = self._key_of(scope)
        except Exception:  # noqa: BLE001  # a key found what it can make nothing of, and the rules have to be told apart
            return self._careful_bill(scope)
        bill = self._bills.get(keys)
        return self._new_bill(keys) if bill is None and keys not in self._bills else bill

    async def ask(self, scope: Scope) -> Bill | None:
        """The bill of a request, after asking its lines' functions. Raises ``Denied``."""
        connection, answers = HTTPConnection(scope), Answers()
        charged = []
        for line in self.lines:
            try:
                charged.append((line, *await line.ask(connection, answers)))
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                line.fail(error)
        return _bill(charged)

    def _careful_bill(self, scope: Scope) -> Bill | None:
        charged = []
        for line in self.lines:
            try:
                key = line.key.of(scope)  # type: ignore[attr-defined]  # plain lines have scope keys
                charged.append((line, key, () if key is None else line.charges(key)))
            except Exception as error:  # noqa: BLE001  # an object of the app's, which nobody knows
                line.fail(error)
        return _bill(charged)

    def _keys_of(self, scope: Scope) -> Keys:
        return tuple([key.of(scope) for key in self._keys])

    def _new_bill(self, keys: Keys) -> Bill | None:
        known = dict(zip(self._keys, keys if isinstance(keys, tuple) else (keys,)))
        keyed = [(line, known[line.key]) for line in self.lines]  # type: ignore[index]  # plain lines have scope keys
        if len(self._bills) >= MAX_BILLS:
            self._bills.clear()
        bill = self._bills[keys] = _bill([(line, key, line.charges(key)) for line, key in keyed if key is not None])
        return bill


def _bill(charged: Sequence[tuple[Line, str | None, tuple[Charge, ...]]]) -> Bill | None:
    """The takes for what each line comes to: one for all that are enforced, and one for each shadow rule."""
    enforced: dict[Bucket, tuple[Line, Charge]] = {}
    looks: dict[Bucket, Charge] = {}
    for line, _, charges in charged:
        for charge in () if line.shadow else charges:
            enforced.setdefault(charge.bucket, (line, charge))
        if line.penalty and charges and not line.shadow:
            asking = look(line.name, charges[0].key, line.penalty)
            looks.setdefault(asking.bucket, asking)
    takes, lines = [], []
    if enforced:
        lines.append([line for line, _ in enforced.values()])
        on_error = max((line.on_error for line in lines[0]), key=_STRICTNESS.index)
        takes.append(Take((*(charge for _, charge in enforced.values()), *looks.values()), on_error=on_error))
    for line, _, charges in charged:
        if line.shadow and charges:
            lines.append([line] * len(charges))
            takes.append(Take(charges, on_error=line.on_error))
    messages = _messages(charged)
    if not takes and not messages:
        return None
    return Bill(tuple(takes), bool(enforced), bool(looks), tuple(_dues(lines)), messages)


def _messages(charged: Sequence[tuple[Line, str | None, tuple[Charge, ...]]]) -> Take | None:
    """What each message over a WebSocket is charged, by all lines that say so."""
    lines = [(line, key) for line, key, _ in charged if line.messages and key is not None and not line.shadow]
    charges = [Charge(quota, key, 1, f"{line.name} messages") for line, key in lines for quota in line.messages]
    if not charges:
        return None
    on_error = max((line.on_error for line, _ in lines), key=_STRICTNESS.index)
    return Take(tuple({charge.bucket: charge for charge in charges}.values()), PATIENCE, on_error=on_error)


def _dues(lines: Sequence[Sequence[Line]]) -> Iterator[Due]:
    """What there is to settle of takes whose charges are of these lines."""
    for take, each in enumerate(lines):
        for line in dict.fromkeys(each):
            if line.settle is not None:
                yield Due(line, take, tuple([place for place, other in enumerate(each) if other is line]))


_STRICTNESS: tuple[OnError | None, ...] = ("allow", None, "local", "deny")
"""What to do without the store, from the mildest on; ``None`` is what the store itself says."""
