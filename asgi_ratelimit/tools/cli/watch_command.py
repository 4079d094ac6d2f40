"""The command ``watch``: shows live what all processes on a store decide."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from ...dashboard import KeyCounts, RuleSummary, Summaries, Summary
from ...stores import RedisStore
from .arguments import add_json
from .live_store import add_store, warn_of_no_program, with_store
from .output import counted, moment, print_table, share

KEYS = 10
"""Keys that are shown."""

CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""


def add_commands(commands: Any) -> None:
    """Add ``watch``."""
    parser = commands.add_parser(
        "watch",
        help="show live what all processes decide",
        example="asgi-ratelimit watch --store redis://localhost:6379/0",
    )
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks (default: 1)")
    parser.add_argument("--once", action="store_true", help="look once")
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=watch)


def watch(options: argparse.Namespace) -> int:
    """Print the counts of all rules repeatedly until it is interrupted."""
    if not options.every >= 0.1:  # true for NaN, too
        raise ValueError(f"--every must be at least 0.1 seconds, not {options.every!r}: --every 1")
    with suppress(KeyboardInterrupt):
        with_store(options, lambda store: _watch(store, options))
    return 0


async def _watch(store: RedisStore, options: argparse.Namespace) -> None:
    summaries = Summaries(store)
    is_first = True
    while True:
        summary = await summaries.read()
        if options.json:
            print(json.dumps(_as_dict(summary)), flush=True)
        else:
            _show(summary)
        if is_first or sys.stdout.isatty():  # each update clears a terminal
            warn_of_no_program(summary.rules)
        is_first = False
        if options.once:
            return
        await asyncio.sleep(options.every)


def _show(summary: Summary) -> None:
    if sys.stdout.isatty():
        print(CLEAR, end="")
    print(f"{moment(summary.now)} UTC, {counted(len(summary.processes), 'process', 'processes')}\n")
    print_table(_COLUMNS, map(_rule_row, summary.rules))
    if summary.keys:
        print()
        print_table(("rule", "key", ">in the hour", ">refused"), map(_key_row, summary.keys[:KEYS]))
    sys.stdout.flush()


_COLUMNS = (
    "rule",
    "quota",
    ">in 2 minutes",
    ">refused",
    ">in the hour",
    ">refused",
    ">share",
    ">shadowed",
    ">degraded",
)


def _rule_row(rule: RuleSummary) -> tuple[object, ...]:
    latest = [sum(numbers) for numbers in zip(*rule.minutes[-2:])]
    total = rule.admitted + rule.refused + rule.shadowed
    ends = share(rule.refused, total), rule.shadowed, rule.degraded
    return rule.name, rule.quotas, sum(latest[:3]), latest[1], total, rule.refused, *ends


def _key_row(key: KeyCounts) -> tuple[object, ...]:
    return key.rule, key.key or "(a hash)", key.requests, key.refused


def _as_dict(summary: Summary) -> dict[str, Any]:
    rules = [
        {
            "name": rule.name,
            "quota": rule.quotas,
            "admitted": rule.admitted,
            "refused": rule.refused,
            "shadowed": rule.shadowed,
            "degraded": rule.degraded,
            "failed": rule.failed,
        }
        for rule in summary.rules
    ]
    keys = [
        {"rule": each.rule, "key": each.key, "requests": each.requests, "refused": each.refused}
        for each in summary.keys[:KEYS]
    ]
    return {"now": summary.now, "processes": len(summary.processes), "rules": rules, "keys": keys}
