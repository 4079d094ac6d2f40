"""Terms: the lines that apply to a request, and the way from there to its bill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..buckets import LONGEST
from ..keys.request_keys import ScopeKey, client_ip
from .bills import Bill, bill_of
from .lines import NOTHING, Answers, Asked, Line

Keys: TypeAlias = str | tuple[str | None, ...] | None
"""What the only key of a request's lines has found, or what each of them has."""

MAX_BILLS = 16_384
"""How many bills are remembered for each set of lines, at the most."""

T = TypeVar("T")


class Terms:
    """The lines that apply to a request, together: the same object each time for the same lines."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = tuple(lines)
        self.is_plain = all(line.is_plain for line in lines)
        self._keys = [key for key in dict.fromkeys(line.key for line in lines) if isinstance(key, ScopeKey)]
        self._key_of = self._keys[0].of if len(self._keys) == 1 else self._keys_of
        self._bills: dict[Keys, Bill | None] = {}
        self._asked: dict[tuple[Asked, ...], Bill | None] = {}
        self._by_peer: dict[str, Bill | None] = {}
        by_client = len(self._keys) == 1 and type(self._keys[0]) is client_ip
        self.bill: Callable[[Scope], Bill | None] = self._bill_by_peer if by_client else self._bill_by_keys
        """The bill of a request whose lines are all plain; ``None`` where none of them has a key.

        It is the same one each time for keys that come again soon.
        """

    def _bill_by_peer(self, scope: Scope) -> Bill | None:
        """Of clients that are no proxies, found at once: one look, for what most requests are."""
        client = scope.get("client")
        try:
            bill = self._by_peer.get(client[0]) if client else None
        except Exception:  # noqa: BLE001  # whatever the server says that a client is, which the key is to complain of
            return self._bill_by_keys(scope)
        if bill is not None:
            return bill
        bill = self._bill_by_keys(scope)
        if bill is not None and client and self._keys[0].is_direct(client[0]):  # type: ignore[attr-defined]
            _remember(self._by_peer, client[0], bill)
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
        asked = []
        for line in self.lines:
            try:
                asked.append(await line.ask(connection, answers))
            except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
                line.fail(error)
                asked.append(NOTHING)
        return self._bill_for(tuple(asked))

    def _careful_bill(self, scope: Scope) -> Bill | None:
        asked = []
        for line in self.lines:
            try:
                asked.append(line.plainly(line.key.of(scope)))  # type: ignore[attr-defined]  # a plain line's is a scope key
            except Exception as error:  # noqa: BLE001  # an object of the app's, which nobody knows
                line.fail(error)
                asked.append(NOTHING)
        return self._made(asked)

    def _keys_of(self, scope: Scope) -> Keys:
        return tuple([key.of(scope) for key in self._keys])

    def _new_bill(self, keys: Keys) -> Bill | None:
        known = dict(zip(self._keys, keys if isinstance(keys, tuple) else (keys,)))
        bill = self._made([line.plainly(known[line.key]) for line in self.lines])  # type: ignore[index]  # as above
        _remember(self._bills, keys, bill)
        return bill

    def _bill_for(self, asked: tuple[Asked, ...]) -> Bill | None:
        """The bill for what functions have answered, the same one each time as above; long keys are not kept."""
        bill = self._asked.get(asked)
        if bill is None and asked not in self._asked:
            bill = self._made(asked)
            if all(key is None or len(key) <= LONGEST for key, _, _ in asked):
                _remember(self._asked, asked, bill)
        return bill

    def _made(self, asked: Sequence[Asked]) -> Bill | None:
        return bill_of([(line, each[0], line.charges(each)) for line, each in zip(self.lines, asked)])


def _remember(bills: dict[T, Bill | None], by: T, bill: Bill | None) -> None:
    if len(bills) >= MAX_BILLS:
        bills.clear()
    bills[by] = bill
