"""The commands on a live store: on its limits (``set``, ``unset``, ``history``), its buckets, and its blocks."""

from __future__ import annotations

import argparse
import asyncio
import heapq
import math
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeAlias, cast

from ...dashboard import Summary, summary
from ...errors import ConfigurationError, StoreError, require_number
from ...inbound.penalties import Blocks, seconds_of
from ...keys import header
from ...keys.addresses import keys_named
from ...overrides import Override, Overrides
from ...quota_text import RESERVED_NAMES
from ...stores.redis import RedisStore
from ...stores.redis.scan import Scan, StoredBucket
from .output import Row, duration, listed, moment, print_json, print_table, say, warn

VARIABLE = "ASGI_RATELIMIT_STORE"
# Seconds in which the store has to answer: only the person who typed a command waits for it.
TIMEOUT = 2.0

# Keys of a store that ``buckets`` reads by default.
MOST = 1_000_000
SHOWN = 20

_STORE = "--store redis://localhost:6379/0"

# Returns whether there was something to do or to show; the exit code is 1 if there was nothing.
Command: TypeAlias = Callable[[RedisStore, argparse.Namespace], Awaitable[bool]]


def add_commands(commands: Any) -> None:
    """Add the commands."""
    for name, run, what, arguments in (
        ("peek", peek, "show what a key has used, and the limit that is in force", "NAME KEY"),
        ("buckets", buckets, "show the keys that have used the most", ""),
        ("reset", reset, "give a key all of its quotas again", "NAME KEY"),
        ("block", block, "refuse a key for a time", 'NAME KEY --for "1 hour"'),
        ("unblock", unblock, "let a key pass again", "NAME KEY"),
        ("set", set_limit, "change a limit by its name, in all programs on the store", "NAME 10/minute --for 1h"),
        ("unset", unset, "remove a change, so that the limit of the program applies again", "NAME"),
        ("history", history, "show what was changed, by whom and when, in UTC", ""),
    ):
        typed = arguments.replace("NAME", '"default POST /login"').replace("KEY", "203.0.113.7")
        example = " ".join(f"asgi-ratelimit {name} {typed} {_STORE}".split())
        parser = commands.add_parser(name, help=what, example=example)
        parser.set_defaults(run=partial(_run, run))
        parser.add_argument("--store", default=os.environ.get(VARIABLE), help=f"its URL (default: that in {VARIABLE})")
        parser.add_argument("--prefix", default="rl", help="the prefix of the store's keys (default: rl)")
        if "NAME" in arguments:
            parser.add_argument("name", help="the name of the rule or limiter, as routes lists it")
        if "KEY" in arguments:
            parser.add_argument("key", help="whose bucket: an address, or what the key function returns")
            parser.add_argument("--hash", action="store_true", help="the key is what a client sends, to be hashed")
        if run is set_limit:
            parser.add_argument("quota", help='"10/minute"; or shadow, which enforces nothing; or off, for no limit')
        if "--for" in arguments:
            parser.add_argument("--for", dest="lasting", required=run is block, help='how long, such as "1 hour"')
        if run not in (peek, buckets, history):
            parser.add_argument("--by", default=os.environ.get("USER") or None, help="for the history (default: $USER)")
    parser = commands.choices["buckets"]
    parser.add_argument("--name", help="only those of this rule or limiter")
    parser.add_argument("--count", type=int, default=SHOWN, help=f"how many to show (default: {SHOWN})")
    parser.add_argument("--scan", type=int, default=MOST, help=f"keys of the store to look at (default: {MOST:,})")


def _run(command: Command, options: argparse.Namespace) -> int:
    """Run a command on the store. Raises ``ConfigurationError`` without one, and ``StoreError`` if it is silent."""
    if options.store in (None, "", "memory://"):  # whose memory is that of this command
        raise ConfigurationError(f"which store? {_STORE}, or {VARIABLE}")
    if getattr(options, "hash", False):
        options.key = header("x").key_of(options.key)  # the hash is the same for all names

    async def run() -> int:
        store = RedisStore(options.store, prefix=options.prefix, timeout=TIMEOUT, on_error="deny")
        try:
            is_done = await command(store, options)
            if is_done and command in _ACTIONS:
                await Overrides(store).note(options.name, options.key, _ACTIONS[command].format(options), by=options.by)
            if not is_done or command in (set_limit, block):
                with suppress(StoreError):  # it is done, also for a user of Redis that may not read the counts
                    await _warn(await summary(store), options, is_block=command is block)
            return 0 if is_done else 1
        finally:
            await store.aclose()

    return asyncio.run(run())


async def _warn(recent: Summary, options: argparse.Namespace, *, is_block: bool) -> None:
    """Warn of what programs have not used in the last hour: the store, the name, a block, or the key of one."""
    name, names = getattr(options, "name", None), sorted({rule.name for rule in recent.rules})
    if not names:
        warn("no program has reported a request here in the last hour: are the URL and --prefix those of your limits?")
    elif name is not None and name not in names:
        near = get_close_matches(name, names, 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        warn(f"nobody has used {name!r} in the last hour, but {listed([*map(repr, names)])}{hint}")
    elif is_block and not any(rule.has_penalty for rule in recent.rules if rule.name == name):
        right = 'Rule(..., penalty=Penalty("10 minutes", after=5))'
        warn(f"{name!r} has no Penalty, so it does not check for blocks, and lets the key pass: {right}")
    elif is_block and not (await _scanned(options, options.key, sys.maxsize))[0]:
        warn(f"{_nothing(options)}: is it a key as these show it, asgi-ratelimit buckets --name {name!r}?")


def _answer(options: argparse.Namespace, text: str, **values: Any) -> None:
    """Print what a command has done, as text or as JSON."""
    if options.json:
        print_json(values)
    else:
        say(text)


async def set_limit(store: RedisStore, options: argparse.Namespace) -> bool:
    """Change a limit."""
    seconds = None if options.lasting is None else seconds_of("--for", options.lasting)
    await Overrides(store).set(options.name, options.quota, seconds=seconds, by=options.by)
    lasting = "" if seconds is None else f" for {duration(seconds)}"
    _answer(options, f"{options.name!r} is {options.quota}{lasting}", name=options.name, quota=options.quota)
    return True


async def unset(store: RedisStore, options: argparse.Namespace) -> bool:
    """Undo a change."""
    had_one = await Overrides(store).unset(options.name, by=options.by)
    _answer(options, f"{options.name!r} {'is no longer' if had_one else 'was not'} overridden", unset=had_one)
    return had_one


async def history(store: RedisStore, options: argparse.Namespace) -> bool:
    """Print what applies now, and the latest changes."""
    overrides, changes = await Overrides(store).all(), await Overrides(store).history()
    if options.json:
        past = [{**_plain(each), "before": _plain(each.before), "after": _plain(each.after)} for each in changes]
        print_json({"overrides": {name: _plain(each) for name, each in overrides.items()}, "history": past})
        return True
    untils = ["unset" if each.until is None else moment(each.until) for each in overrides.values()]
    rows: list[Row] = [(name, each.text, until, each.by) for (name, each), until in zip(overrides.items(), untils)]
    print_table(("name", "is now", "until", "by"), rows)
    print()
    ends = [(each.key, each.action) if each.action else (each.before, each.after) for each in changes]
    texts = [["(the program's)" if end is None else getattr(end, "text", end) for end in both] for both in ends]
    rows = [(moment(each.at), each.name, *both, each.by) for each, both in zip(changes, texts)]
    print_table(("changed", "name", "from", "to", "by"), rows)
    return True


def _plain(value: Any) -> Any:
    """An override, a change or a bucket as plain values."""
    if isinstance(value, Override):
        return {"quota": value.text, "until": value.until, "by": value.by, "at": value.at}
    return None if value is None else {name: each for name, each in asdict(value).items() if name != "bucket"}


async def peek(store: RedisStore, options: argparse.Namespace) -> bool:
    """Print the limit that is in force, the buckets of a key, and its block."""
    stored, _ = await _scanned(options, options.key, sys.maxsize)
    blocked_for = await Blocks(store=store, name=options.name).blocked_for(options.key)
    override = (await Overrides(store).all()).get(options.name)
    own = next((rule.quotas for rule in (await summary(store)).rules if rule.name == options.name), "")
    in_force = own if override is None else override.text
    by = f", set by {override.by}" if override and override.by else ""
    if options.json:
        values = {"in_force": in_force or None, "blocked_for": blocked_for}
        print_json({**values, "buckets": [_plain(each) for each in stored]})
    else:
        if in_force:
            say(f"in force: {in_force}{by}")
        if stored:
            print_table(_COLUMNS[2:], [_row(each)[2:] for each in stored])
        if blocked_for or not stored:
            say(f"blocked for {duration(blocked_for)}" if blocked_for else _nothing(options))
    return bool(stored or blocked_for)


def _nothing(options: argparse.Namespace) -> str:
    return f"{options.key!r} has used nothing of {options.name!r}"


async def _scanned(options: argparse.Namespace, key: str | None, most: int) -> tuple[list[StoredBucket], Scan]:
    """The buckets among the first keys of the store, except those of blocks."""
    scan = Scan(options.store, prefix=options.prefix, timeout=TIMEOUT)
    keys = [None] if key is None else keys_named(key)
    stored = [each for one in keys for each in await scan.buckets(options.name, one, most=most)]
    return [each for each in stored if each.quota not in RESERVED_NAMES], scan


async def reset(store: RedisStore, options: argparse.Namespace) -> bool:
    """Forget the buckets of a key."""
    stored, _ = await _scanned(options, options.key, sys.maxsize)
    await store.reset(cast("Any", stored))  # a store needs no more than the buckets
    names = [each.quota for each in stored]
    _answer(options, f"reset: {', '.join(names)}" if names else _nothing(options), reset=names)
    return bool(names)


async def block(store: RedisStore, options: argparse.Namespace) -> bool:
    """Block a key, unless it is blocked."""
    is_new = await Blocks(store=store, name=options.name).block(options.key, seconds_of("--for", options.lasting))
    done = f"is blocked for {options.lasting}" if is_new else "was blocked before"
    _answer(options, f"{options.key!r} {done}", blocked=is_new)
    return is_new


async def unblock(store: RedisStore, options: argparse.Namespace) -> bool:
    """Lift the block of a key."""
    blocks = Blocks(store=store, name=options.name)
    was_blocked = await blocks.blocked_for(options.key) > 0.0
    await blocks.lift(options.key)
    done = "may pass again" if was_blocked else "was not blocked"
    _answer(options, f"{options.key!r} {done}", was_blocked=was_blocked)
    return was_blocked


async def buckets(store: RedisStore, options: argparse.Namespace) -> bool:
    """Print the keys that have used the most units."""
    require_number("--count must be a whole number of at least 1", options.count, 1, math.inf, f"--count {SHOWN}", int)
    stored, scan = await _scanned(options, None, options.scan)
    most = heapq.nlargest(options.count, stored, key=lambda each: (each.used, each.reset_after))
    if options.json:
        print_json({"is_whole": scan.is_whole, "buckets": [_plain(each) for each in most]})
        return bool(most)
    print_table(_COLUMNS, map(_row, most))
    if not scan.is_whole:
        print(f"of the first {scan.looked:,} keys of the store: --scan {10 * options.scan}")
    return bool(most)


_COLUMNS = ("name", "key", "quota", ">used", "full again in")


def _row(each: StoredBucket) -> Row:
    return each.name, each.key, each.quota, round(each.used, 3), duration(each.reset_after)


# What the history says of the commands that change a key.
_ACTIONS = {reset: "reset", block: "blocked for {0.lasting}", unblock: "unblocked"}
