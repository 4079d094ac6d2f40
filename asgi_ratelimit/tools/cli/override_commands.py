"""The commands that change limits while programs run: ``set``, ``unset`` and ``history``."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Sequence
from typing import Any

from ...dashboard import RuleSummary
from ...overrides import Change, Override, Overrides
from ...stores import RedisStore
from .arguments import add_json, seconds_of
from .live_store import add_store, recent_rules, warn_of_name, with_store
from .output import duration, moment, print_json, print_table

_STORE = "--store redis://localhost:6379/0"


def add_commands(commands: Any) -> None:
    """Add the commands."""
    parser = commands.add_parser(
        "set",
        help="change a limit by its name, in all programs on the store",
        example=f'asgi-ratelimit set "default POST /login" 10/minute --for 1h {_STORE}',
    )
    parser.add_argument("name", help="the name of the rule or limiter, as routes lists it")
    parser.add_argument(
        "quota", help='such as "10/minute"; or shadow, which enforces nothing; or off, which is no limit'
    )
    parser.add_argument("--for", dest="lasting", help="how long, such as 1h or 2 days (default: until unset)")
    _add_options(parser, set_limit)
    parser = commands.add_parser(
        "unset",
        help="remove a change, so that the limit of the program applies again",
        example=f'asgi-ratelimit unset "default POST /login" {_STORE}',
    )
    parser.add_argument("name", help="the name of the rule or limiter")
    _add_options(parser, unset)
    parser = commands.add_parser(
        "history", help="show what was changed, by whom and when", example=f"asgi-ratelimit history {_STORE}"
    )
    add_store(parser)
    add_json(parser)
    parser.set_defaults(run=history)


def _add_options(parser: argparse.ArgumentParser, run: Any) -> None:
    parser.add_argument("--by", default=_user(), help="whom the history names (default: you)")
    add_store(parser)
    parser.set_defaults(run=run)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return None


def set_limit(options: argparse.Namespace) -> int:
    """Change a limit."""
    seconds = None if options.lasting is None else seconds_of("--for", options.lasting)

    async def change(store: RedisStore) -> Sequence[RuleSummary]:
        await Overrides(store).set(options.name, options.quota, seconds=seconds, by=options.by)
        return await recent_rules(store)

    rules = with_store(options, change)
    print(f"{options.name!r} is {options.quota}{'' if seconds is None else f' for {duration(seconds)}'}")
    warn_of_name(options.name, rules)
    return 0


def unset(options: argparse.Namespace) -> int:
    """Undo a change; exit code 1 if there was none."""
    had_one = with_store(options, lambda store: Overrides(store).unset(options.name, by=options.by))
    print(f"{options.name!r} {'is no longer' if had_one else 'was not'} overridden")
    return 0 if had_one else 1


def history(options: argparse.Namespace) -> int:
    """Print what applies now, and the latest changes."""
    overrides = with_store(options, lambda store: Overrides(store).all())
    changes = with_store(options, lambda store: Overrides(store).history())
    if options.json:
        now = {name: _as_dict(each) for name, each in overrides.items()}
        print_json({"overrides": now, "history": [_change_as_dict(each) for each in changes]})
        return 0
    print_table(("name", "is now", "until", "by"), [(name, *_row(each)) for name, each in overrides.items()])
    print()
    print_table(("changed", "name", "from", "to", "by"), [_change_row(each) for each in changes])
    return 0


def _row(override: Override) -> tuple[str, str, str | None]:
    return override.text, "unset" if override.until is None else moment(override.until), override.by


def _change_row(change: Change) -> tuple[str, str, str | None, str | None, str | None]:
    before, after = (None if each is None else each.text for each in (change.before, change.after))
    return moment(change.at), change.name, before or "(the program's)", after or "(the program's)", change.by


def _as_dict(override: Override | None) -> dict[str, Any] | None:
    if override is None:
        return None
    return {"quota": override.text, "until": override.until, "by": override.by, "at": override.at}


def _change_as_dict(change: Change) -> dict[str, Any]:
    ends = {"before": _as_dict(change.before), "after": _as_dict(change.after)}
    return {"name": change.name, "at": change.at, "by": change.by, **ends}
