"""The changes from one reading of a file of limits to the next, in words.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from ...quota_text import as_text
from ..rules import Rule
from .options import AT_START, Options


def changes(old: Options, new: Options) -> list[str]:
    """One line for each option and each rule that differs."""
    lines = list(_changed_options(old, new))
    before, after = _by_name(old.rules), _by_name(new.rules)
    lines.extend([f"{name} is gone: {_shown(rule.quota)}" for name, rule in before.items() if name not in after])
    lines.extend([f"{name} is new: {_shown(rule.quota)}" for name, rule in after.items() if name not in before])
    for name in [name for name in after if name in before]:
        different = [
            f"{each.name} {_shown(getattr(before[name], each.name))} -> {_shown(getattr(after[name], each.name))}"
            for each in fields(Rule)
            if _shown(getattr(before[name], each.name)) != _shown(getattr(after[name], each.name))
        ]
        if different:
            lines.append(f"{name}: {', '.join(different)}")
    if not lines and [*before] != [*after]:
        lines.append("the rules have another order")
    return lines


def _changed_options(old: Options, new: Options) -> Iterator[str]:
    for each in fields(Options):
        before, after = _shown(getattr(old, each.name)), _shown(getattr(new, each.name))
        if each.name != "rules" and before != after:
            later = ", from the next start on" if each.name in AT_START else ""
            yield f"{each.name} {before} -> {after}{later}"


def _by_name(rules: Sequence[Rule]) -> dict[str, Rule]:
    named: dict[str, Rule] = {}
    for rule in rules:
        name = rule.name or " ".join([*sorted(rule.methods or ()), rule.path])
        count = 1
        while (name if count == 1 else f"{name} {count}") in named:
            count += 1
        named[name if count == 1 else f"{name} {count}"] = rule
    return named


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple) and value and hasattr(value[0], "period"):
        return as_text(value)
    return value if isinstance(value, str) else repr(value)
