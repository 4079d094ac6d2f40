"""Rules of one name share their buckets, so they must agree: no rule may switch off or use up the limit of another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import ConfigurationError
from ..overrides import limit_text
from ..quota_text import readable
from ..quotas import Quota
from .rules import CompiledRule, constant_quotas


def require_agreement(rules: Iterable[CompiledRule]) -> None:
    """Raise ``ConfigurationError`` for rules of one name that differ in what they do to the buckets they share.

    Their quotas of one name must be equal, or come from one function; so must their penalties. They are all enforced,
    or all in shadow. Messages of a rule are as a rule of the name that their buckets have.
    """
    declared = tuple(rules)
    _require_equal_quotas([(rule.name, quota) for rule in declared for quota in rule.messages], "quotas for messages")
    listed = (*declared, *[_of_messages(rule) for rule in declared if rule.messages and not rule.shadow])
    _require_equal_quotas(constant_quotas(listed), "quotas")
    charging: dict[str, CompiledRule] = {}
    punishing: dict[str, CompiledRule] = {}
    for rule in listed:
        if rule.quota:
            other = charging.setdefault(rule.name, rule)
            _require_one_function(other, rule)
            _require_one_effect(other, rule)
        if rule.penalty is not None:
            _require_one_penalty(punishing.setdefault(rule.name, rule), rule)


def _of_messages(rule: CompiledRule) -> CompiledRule:
    """What a rule charges each message; one in shadow would charge nothing."""
    return replace(rule, name=rule.messages_name, quota=rule.messages, messages=(), penalty=None)


def _require_equal_quotas(named: Iterable[tuple[str, Quota]], what: str) -> None:
    quotas: dict[tuple[str, str], Quota] = {}
    for name, quota in named:
        other = quotas.setdefault((name, quota.name), quota)
        if other != quota:
            raise ConfigurationError(
                f"two rules named {name!r} have different {what} named {quota.name!r}, {readable(other)} and "
                f'{readable(quota)}, and would share a bucket: give one of them another name, Rule(..., name="uploads")'
            )


def _require_one_function(one: CompiledRule, other: CompiledRule) -> None:
    if (callable(one.quota) or callable(other.quota)) and one.quota != other.quota:
        raise ConfigurationError(
            f"two rules named {one.name!r} have the quotas {limit_text(one.quota)} and {limit_text(other.quota)}, of "
            "which one may switch the other off, because they would share a bucket: give both the same function, or "
            'give one of them another name, Rule(..., name="uploads")'
        )


def _require_one_effect(one: CompiledRule, other: CompiledRule) -> None:
    if one.shadow != other.shadow:
        raise ConfigurationError(
            f"of two rules named {one.name!r}, one is enforced, and the one in shadow would use up its bucket: give "
            'that another name, Rule(..., shadow=True, name="trial")'
        )


def _require_one_penalty(one: CompiledRule, other: CompiledRule) -> None:
    if one.penalty != other.penalty:
        raise ConfigurationError(
            f"two rules named {one.name!r} have different penalties, {one.penalty!r} and {other.penalty!r}, and would "
            'share their blocks: give one of them another name, Rule(..., name="uploads")'
        )
