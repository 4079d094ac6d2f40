"""Reports of replays: who would have been refused, when, and how often, as plain values.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...inbound.rule_table import RuleTable
from ...quotas import SECOND_US
from ..coverage import quotas_as_text
from .counts import KeyCount, Moment, RuleCounts
from .replay import Replay

PARTS = 60
"""The number of parts of the time among which the worst moments are found."""


def report_of(replay: Replay, limits: RuleTable, top: int, shown: Callable[[str], str] = str) -> dict[str, Any]:
    """The results of a replay, with the ``top`` clients of each rule and moments; ``shown`` turns a key into text.

    Times are in seconds since the epoch.
    """
    quotas = {rule.name: quotas_as_text(rule) for rule in limits.charging}
    return {
        "requests": replay.requests,
        "refused": replay.refused,
        "unlimited": replay.unlimited,
        "delayed": replay.delayed,
        "clients": len(replay.clients),
        "refused_clients": sum(replay.clients.values()),
        "from": replay.first_us / SECOND_US,
        "to": replay.last_us / SECOND_US,
        "rules": [_rule(counts, quotas[name], top, shown) for name, counts in replay.rules.items()],
        "worst": [_moment(each) for each in replay.timeline.worst(top, PARTS)],
    }


def _rule(counts: RuleCounts, quota: str, top: int, shown: Callable[[str], str]) -> dict[str, Any]:
    return {
        "name": counts.name,
        "quota": quota,
        "shadow": counts.is_shadow,
        "requests": counts.requests,
        "refused": counts.refused,
        "clients": len(counts.keys),
        "refused_clients": counts.refused_keys,
        "top": [_client(shown(key), count) for key, count in counts.top(top)],
    }


def _client(key: str, count: KeyCount) -> dict[str, Any]:
    return {"key": key, "requests": count.requests, "refused": count.refused, "first": count.first_us / SECOND_US}


def _moment(moment: Moment) -> dict[str, Any]:
    return {"from": moment.time, "seconds": moment.seconds, "requests": moment.requests, "refused": moment.refused}
