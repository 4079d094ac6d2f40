"""The options of a middleware that say what is limited."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...buckets import DEFAULT_NAME
from ...decision import OnError
from ...keys import KeyFunction, client_ip
from ...overrides import NO_OVERRIDES, live_overrides
from ...quota_text import QuotaLike
from ...stores import Store
from ..delays import MAX_WAITING
from ..functions import CostFunction, Failures, QuotaFunction, address_key
from ..penalties import Penalty
from ..responses.header_options import DialectName, HeaderOptions
from ..rule_table import Defaults, RuleTable
from ..rules import Rule
from .limits_file import Place, Settings, error_at, shown


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

    def merged(self, settings: Settings) -> Options:
        """These options of the program and those of a file, whose rules come after the program's.

        Raises ``ConfigurationError`` for an option that both give, and for options that do not fit together.
        """
        for name, value in settings.options.items():
            own = getattr(self, name)
            if own != getattr(USUAL, name) and own is not getattr(USUAL, name):
                problem = f"{shown(value)}: the program gives it, too, {name}={own!r}: remove one of them"
                raise error_at(settings.file, (name,), problem)
        options = replace(self, **settings.options, rules=(*self.rules, *settings.rules))
        failure = options.failure()
        if failure is None:
            return options
        fewer = (replace(options, rules=options.rules[:-count]) for count in range(1, len(settings.rules) + 1))
        fitting = next((each for each in fewer if each.failure() is None), None)
        place: Place = () if fitting is None else ("rules", len(fitting.rules) - len(self.rules))
        raise error_at(settings.file, place, failure) from failure

    def failure(self) -> ValueError | None:
        """The reason why these options are invalid, if there is one."""
        try:
            self.table(self.defaults(Failures()), "", None)
        except ValueError as error:
            return error
        return None

    def defaults(self, failures: Failures) -> Defaults:
        """The values that rules have unless they have their own."""
        name = DEFAULT_NAME if self.name is None else self.name
        address = address_key([self.key, *[rule.key for rule in self.rules]])
        return Defaults(name, self.key, self.cost, self.on_error, self.max_delay, fallback=address, failures=failures)

    def table(self, defaults: Defaults, root: str, store: Store | None) -> RuleTable:
        """All rules, under the overrides of a store."""
        overrides = NO_OVERRIDES if store is None else live_overrides(store)
        return RuleTable(self.quota, self.rules, defaults, penalty=self.penalty, root=root, overrides=overrides)


USUAL = Options(None, (), client_ip(), None, 1, "draft-10", None, None, 0.0, MAX_WAITING)
"""The options of a middleware without arguments."""

AT_START = ("name", "headers", "max_waiting")
"""The options that a file can change only for the next start of a program."""
