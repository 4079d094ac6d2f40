"""The commands on the buckets of a live store: ``peek``, ``top``, ``reset``, ``block`` and ``unblock``."""

from __future__ import annotations

import argparse
import asyncio
import heapq
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...buckets import DEFAULT_NAME
from ...dashboard import RuleSummary, summary
from ...decision import Charge, Take
from ...inbound import Blocks
from ...keys import header
from ...quota_text import RESERVED_NAMES, as_quotas
from ...stores import RedisStore
from ...stores.redis.scan import Scan, StoredBucket
from .arguments import add_json, positive, seconds_of
from .live_store import TIMEOUT, add_store, recent_rules, store_url, warn_of_name, warn_of_no_program, with_store
from .output import Row, duration, print_json, print_table

MOST = 1_000_000
"""Keys of a store that a command reads by default."""
SHOWN = 20


def add_commands(commands: Any) -> None:
    """Add the commands."""
    peek_parser = _add(commands, "peek", peek, "show what a key has used", 'peek "default POST /login" 203.0.113.7')
    reset_parser = _add(
        commands, "reset", reset, "give a key all of its quotas again", 'reset "default POST /login" 203.0.113.7'
    )
    for parser in (peek_parser, reset_parser):
        parser.add_argument("--quota", help="the quota, so that the store is not searched for it")
    parser = _add(
        commands, "block", block, "refuse a key for a time", 'block "default POST /login" 203.0.113.7 --for "1 hour"'
    )
    parser.add_argument("--for", dest="block_for", required=True, help='how long, such as "1 hour" or "10 minutes"')
    _add(commands, "unblock", unblock, "let a key pass again", 'unblock "default POST /login" 203.0.113.7')
    parser = commands.add_parser(
        "top", help="show the keys that have used the most", example=f"asgi-ratelimit top {_STORE}"
    )
    parser.add_argument("--name", help="only those of this rule or limiter")
    parser.add_argument("--count", type=positive, default=SHOWN, help=f"how many to show (default: {SHOWN})")
    parser.add_argument("--scan", type=positive, default=MOST, help=f"keys of the store to look at (default: {MOST:,})")
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=top)


_STORE = "--store redis://localhost:6379/0"


def _add(commands: Any, name: str, run: Any, what: str, example: str) -> Any:
    """Add a command on one key of a name."""
    parser = commands.add_parser(name, help=what, example=f"asgi-ratelimit {example} {_STORE}")
    parser.add_argument(
        "name", help=f"the name of the rule or limiter, as routes lists it: {DEFAULT_NAME!r}, or 'default POST /login'"
    )
    parser.add_argument("key", help="whose bucket: an address, or what the key function returns")
    parser.add_argument(
        "--hash", action="store_true", help="the key is what a client sends, hashed by header() or cookie()"
    )
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=partial(_run_hashed, run))
    return parser


def _run_hashed(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command on the key, or on its hash; warn if it found nothing, or cannot know, and the keys are hashes."""
    if options.hash:
        options.key = header("x").key_of(options.key)  # the hash is the same for all names
    code = run(options)
    if (code or run is block) and not options.hash and with_store(options, lambda store: _are_hashes(store, options)):
        print(
            f"warning: the keys of {options.name!r} are hashes of what clients send, as header() and cookie() make "
            "them: --hash",
            file=sys.stderr,
        )
    return code


async def _are_hashes(store: RedisStore, options: argparse.Namespace) -> bool:
    """Whether all recent keys of the name are hashes, and the key is none."""
    keys = [each.key or "" for each in (await summary(store)).keys if each.rule == options.name]
    return bool(keys) and all(map(_HASH.fullmatch, keys)) and not _HASH.fullmatch(options.key)


_HASH = re.compile("[0-9a-f]{32}")


def peek(options: argparse.Namespace) -> int:
    """Print the buckets of a key, and how long it is blocked; exit code 1 if there is nothing."""
    buckets = [each for each in _stored(options) if each.quota not in RESERVED_NAMES]
    blocked_for = with_store(options, lambda store: Blocks(store=store, name=options.name).blocked_for(options.key))
    if options.json:
        print_json({"blocked_for": blocked_for, "buckets": [_as_dict(each) for each in buckets]})
    else:
        if buckets:
            print_table(_COLUMNS[2:], [_row(each)[2:] for each in buckets])
        if blocked_for:
            print(f"blocked for {duration(blocked_for)}")
        if not buckets and not blocked_for:
            print(f"{options.key!r} has used nothing of {options.name!r}")
    if not buckets and not blocked_for:
        warn_of_name(options.name, with_store(options, recent_rules))
    return 0 if buckets or blocked_for else 1


def _stored(options: argparse.Namespace) -> list[StoredBucket]:
    """The buckets of a key: that of the named quota, or those that a search finds."""
    if options.quota is None:
        return asyncio.run(_scan(options).buckets(options.name, options.key, most=MOST))
    return with_store(options, lambda store: _peeked(store, options))


async def _peeked(store: RedisStore, options: argparse.Namespace) -> list[StoredBucket]:
    buckets: list[StoredBucket] = []
    for quota in as_quotas(options.quota):
        charge = Charge(quota, options.key, 1, options.name)
        state = (await store.peek(Take((charge,)))).states[0]
        used = quota.most - state.remaining
        stored = StoredBucket(charge.bucket, options.name, quota.name, options.key, used, state.reset_after)
        buckets += [stored] if used else []
    return buckets


def reset(options: argparse.Namespace) -> int:
    """Forget the buckets of a key; exit code 1 if there are none."""
    stored: list[Any] = [each for each in _stored(options) if each.quota not in RESERVED_NAMES]
    with_store(options, lambda store: store.reset(stored))  # a store needs no more than the buckets
    names = [each.quota for each in stored]
    if options.json:
        print_json({"reset": names})
    else:
        print(f"reset: {', '.join(names)}" if names else f"{options.key!r} has used nothing of {options.name!r}")
    if not names:
        warn_of_name(options.name, with_store(options, recent_rules))
    return 0 if names else 1


def block(options: argparse.Namespace) -> int:
    """Block a key; exit code 1 if it already was blocked."""
    seconds = seconds_of("--for", options.block_for)

    async def add(store: RedisStore) -> tuple[bool, Sequence[RuleSummary]]:
        is_new = await Blocks(store=store, name=options.name).block(options.key, seconds)
        return is_new, await recent_rules(store)

    is_new, rules = with_store(options, add)
    if options.json:
        print_json({"blocked": is_new})
    else:
        print(
            f"{options.key!r} is blocked for {options.block_for}" if is_new else f"{options.key!r} was blocked before"
        )
    if not warn_of_name(options.name, rules) and not any(
        each.has_penalty for each in rules if each.name == options.name
    ):
        print(
            f"warning: {options.name!r} has no Penalty, so it does not check for blocks, and lets the key pass: "
            'Rule(..., penalty=Penalty("10 minutes", after=5))',
            file=sys.stderr,
        )
    return 0 if is_new else 1


def unblock(options: argparse.Namespace) -> int:
    """Lift the block of a key; exit code 1 if it was not blocked."""

    async def lift(store: RedisStore) -> bool:
        blocks = Blocks(store=store, name=options.name)
        was_blocked = await blocks.blocked_for(options.key) > 0.0
        await blocks.lift(options.key)
        return was_blocked

    was_blocked = with_store(options, lift)
    if options.json:
        print_json({"was_blocked": was_blocked})
    else:
        print(f"{options.key!r} may pass again" if was_blocked else f"{options.key!r} was not blocked")
    return 0 if was_blocked else 1


def top(options: argparse.Namespace) -> int:
    """Print the keys that have used the most units."""
    scan = _scan(options)
    buckets = asyncio.run(scan.buckets(options.name, most=options.scan))
    limited = [each for each in buckets if each.quota not in RESERVED_NAMES]
    most = heapq.nlargest(options.count, limited, key=lambda each: (each.used, each.reset_after))
    if options.json:
        print_json({"is_whole": scan.is_whole, "buckets": [_as_dict(each) for each in most]})
    else:
        print_table(_COLUMNS, map(_row, most))
        if not scan.is_whole:
            print(f"of the first {scan.looked:,} keys of the store: --scan {10 * options.scan}")
    if not most:
        _warn_of_nothing(options)
    return 0


def _warn_of_nothing(options: argparse.Namespace) -> None:
    """Warn about a name or a store that no program has used in the last hour."""
    rules = with_store(options, recent_rules)
    if options.name is None:
        warn_of_no_program(rules)
    else:
        warn_of_name(options.name, rules)


def _scan(options: argparse.Namespace) -> Scan:
    return Scan(store_url(options), prefix=options.prefix, timeout=TIMEOUT)


_COLUMNS = ("name", "key", "quota", ">used", "full again in")


def _row(each: StoredBucket) -> Row:
    return each.name, each.key, each.quota, round(each.used, 3), duration(each.reset_after)


def _as_dict(each: StoredBucket) -> dict[str, Any]:
    return {
        "name": each.name,
        "key": each.key,
        "quota": each.quota,
        "used": each.used,
        "reset_after": each.reset_after,
    }
