"""The total charges of several rules for one request, which should fit into one take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from starlette.routing import PARAM_REGEX

from ...errors import ConfigurationError
from ...keys.path_patterns import compile_path
from ...quotas import MAX_CHARGES, MOST_IN_ONE_TAKE
from ..penalties.block_checks import BLOCK
from ..rules import CompiledRule

_EXAMPLES = ("x", "1", "00000000-0000-0000-0000-000000000000")
"""Example values for the parameters of a path."""


def require_few_charges(rules: Sequence[CompiledRule], where: str) -> None:
    """Raise ``ConfigurationError`` for rules that charge one request more than one take may; ``where`` says which one.

    Quotas that functions return are not counted, and each shadow rule has a take of its own.
    """
    enforced = [rule for rule in rules if not rule.shadow]
    for charges, what in ((_quotas(enforced), "charges"), (_messages(enforced), "charges for each message")):
        weight = sum(charges.values())
        if weight > MAX_CHARGES:
            names = list(dict.fromkeys([name for name, _ in charges]))
            shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ConfigurationError(
                f"{MOST_IN_ONE_TAKE}, and each penalty as one: {shown} come to {weight} {what} for {where}; "
                "use fewer buckets, RollingWindow(1000, 3600, 60), or fewer rules together, "
                'Rule("/reports", "10/minute", only=True)'
            )


def require_few_charges_together(
    own: Sequence[CompiledRule],
    rules: Sequence[CompiledRule],
    selected: Callable[[Sequence[CompiledRule], Sequence[CompiledRule]], Sequence[CompiledRule]],
) -> None:
    """Raise ``ConfigurationError`` for a middleware whose rules charge some request more than one take may.

    Each rule's own path is tried, with an example of each of its parameters: rules that match together only at another
    path are not found. ``selected`` returns which of the matching rules are charged.
    """
    require_few_charges(own, "each request")
    if max(sum(_quotas([*own, *rules]).values()), sum(_messages(rules).values())) <= MAX_CHARGES:
        return
    for path, method in dict.fromkeys([each for rule in rules for each in _examples(rule)]):
        matching = [rule for rule in rules if rule.matches(path, method)]
        require_few_charges(selected(own, matching), f"{method} {path}")


def _quotas(rules: Iterable[CompiledRule]) -> dict[tuple[str, str], int]:
    """The weight of each quota of these rules, by the names of the rule and the quota, and the weight of penalties."""
    weights = {}
    for rule in rules:
        for quota in () if callable(rule.quota) else rule.quota:
            weights[rule.name, quota.name] = quota.weight
        if rule.penalty is not None:
            weights[rule.name, BLOCK.name] = BLOCK.weight
    return weights


def _messages(rules: Iterable[CompiledRule]) -> dict[tuple[str, str], int]:
    return {(rule.name, quota.name): quota.weight for rule in rules for quota in rule.messages}


def _examples(rule: CompiledRule) -> Iterable[tuple[str, str]]:
    """A path that a rule matches, with each of its methods."""
    _, convertors = compile_path(rule.path)

    def example(parameter: Any) -> str:
        kind = re.compile(convertors[parameter[1]].regex)
        return next((each for each in _EXAMPLES if kind.fullmatch(each)), "")

    path = PARAM_REGEX.sub(example, rule.path)
    return [(path, method) for method in sorted(rule.methods or ("GET",))]
