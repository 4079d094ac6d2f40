"""The options of a middleware that say what is limited."""

from __future__ import annotations

from dataclasses import dataclass

from ...buckets import DEFAULT_NAME
from ...decision import OnError
from ...keys import KeyFunction
from ...overrides import live_overrides
from ...quota_text import QuotaLike
from ...stores import Store
from ..answers.header_options import DialectName, HeaderOptions
from ..functions.checked import CostFunction, QuotaFunction, address_key
from ..functions.failures import Failures
from ..penalties.penalty import Penalty
from ..rule_table import Defaults, RuleTable
from ..rules import Rule


@dataclass(frozen=True, slots=True)
class Options:
    """As in ``RateLimitMiddleware``."""

    quota: QuotaLike | QuotaFunction | None
    rules: tuple[Rule, ...]
    key: KeyFunction
    name: str | None
    cost: float | CostFunction
    headers: DialectName | HeaderOptions | None
    on_error: OnError | None
    penalty: Penalty | None
    max_delay: float
    max_waiting: int

    def defaults(self, failures: Failures) -> Defaults:
        """The values that rules have unless they have their own."""
        name = DEFAULT_NAME if self.name is None else self.name
        address = address_key([self.key, *[rule.key for rule in self.rules]])
        return Defaults(name, self.key, self.cost, self.on_error, self.max_delay, fallback=address, failures=failures)

    def table(self, defaults: Defaults, root: str, store: Store) -> RuleTable:
        """All rules, under the overrides of the store."""
        return RuleTable(
            self.quota, self.rules, defaults, penalty=self.penalty, root=root, overrides=live_overrides(store)
        )
