"""What each message of an open socket takes, by the current rules, under the keys of the socket's handshake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ...decision import Charge, Take
from ..functions.connection_functions import connection_of
from ..plan import RuleTable
from ..rules import STRICTNESS, CompiledRule

MESSAGE_MAX_WAIT = 5.0
"""The most seconds for which reading from a WebSocket may pause."""


class HasRules(Protocol):
    """A middleware, whose rules are replaced by another table when a limit changes."""

    rule_table: RuleTable


class MessageLimits:
    """``takes`` is what each message of a socket takes, as of the last ``follow``.

    The socket's scope is that of the handshake, however the app has changed it since.
    """

    def __init__(self, source: HasRules, scope: Scope) -> None:
        self._source = source
        self._scope = {**scope}
        self._table: RuleTable | None = None
        self._keys: list[tuple[CompiledRule, str | None]] = []
        self.takes: tuple[Take, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether no limit has changed since the last ``follow``."""
        return self._table is self._source.rule_table

    def use_keys(self, found: Iterable[tuple[CompiledRule, str | None]]) -> None:
        """Use these keys of rules, which are those of the handshake."""
        self._keys = list(found)

    async def follow(self) -> None:
        """Follow the current rules. Keys stay; only a rule that is new, or has another key function, finds its key."""
        table = self._source.rule_table
        plan = table.plan_for(self._scope)
        rules = [rule for rule in plan.rules if rule.messages and not rule.shadow] if plan else []
        connection = connection_of(self._scope)
        keys = [await self._key(rule, connection) for rule in rules]
        self.takes = _takes(rules, keys)
        self._table = table

    async def _key(self, rule: CompiledRule, connection: HTTPConnection) -> str | None:
        for other, key in self._keys:
            if other.name == rule.name and other.key == rule.key:
                return key
        key = await rule.key_of(connection)
        self._keys.append((rule, key))
        return key


def _takes(rules: Sequence[CompiledRule], keys: Sequence[str | None]) -> tuple[Take, ...]:
    """The takes of a message under these rules, each with its key; a rule without a key takes nothing."""
    limiting = [(rule, key) for rule, key in zip(rules, keys) if key is not None]
    by_bucket: dict[str, Charge] = {}
    for rule, key in limiting:
        for quota in rule.messages:
            charge = Charge(quota, key, 1, rule.messages_name)
            by_bucket.setdefault(charge.bucket, charge)
    if not by_bucket:
        return ()
    on_error = STRICTNESS[max(rule.strictness for rule, _ in limiting)]
    return (Take(tuple(by_bucket.values()), MESSAGE_MAX_WAIT, on_error=on_error),)
