"""Errors in a file of limits: where it is wrong, what is wrong, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from ...errors import ConfigurationError
from .line_numbers import Place, line_of

EXAMPLES = {
    "after": "after = 5",
    "block_for": 'block_for = "10 minutes"',
    "client_ip": '[client_ip] with trusted_proxies = ["10.0.0.0/8"]',
    "cost": "cost = 1",
    "exempt": "exempt = true",
    "forwarded_header": 'forwarded_header = "x-real-ip"',
    "function": 'function = "app.limits:plan_of"',
    "growth": "growth = 2.0",
    "headers": 'headers = "draft-10"',
    "ipv6_prefix": "ipv6_prefix = 64",
    "key": 'key = "header:X-Api-Key", or key = "app.limits:key_of"',
    "longest": 'longest = "1 day"',
    "max_delay": "max_delay = 2.0",
    "max_waiting": "max_waiting = 1000",
    "messages": 'messages = "20/s"',
    "methods": 'methods = ["POST"]',
    "name": 'name = "login"',
    "on_error": 'on_error = "local"',
    "on_limited": 'on_limited = "app.limits:answer"',
    "only": "only = true",
    "path": 'path = "/login"',
    "penalty": 'penalty = { block_for = "10 minutes", after = 5 }',
    "quota": 'quota = "100/minute"',
    "rules": '[[rules]] with path = "/login" and quota = "3/minute"',
    "settle": 'settle = "app.limits:actual_cost"',
    "shadow": "shadow = true",
    "tier": 'tier = "plan"',
    "tiers": '[tiers.plan] with function = "app.limits:plan_of" and free = "10/minute"',
    "trusted_proxies": 'trusted_proxies = ["10.0.0.0/8"]',
    "within": 'within = "1 hour"',
}
"""A valid example for each key."""


_STORE = 'RateLimitMiddleware(app, config="limits.toml", store="redis://localhost")'


_EXAMPLE_OF_PYTHON = re.compile(
    r"""(?!it\ cannot\ be\ imported)  # which quotes an error of the program
        (.*?)(?:\.\ Valid\ examples:\ .*|:\ "100/minute",\ .*|:\ (?:def\ )?\w+[=(].*)""",
    re.VERBOSE,
)
"""An error of an argument, and the examples at its end, which are not written so in a file."""


class FileErrors:
    """Makes errors that say where in a file something is wrong."""

    def __init__(self, file: str, lines: Mapping[Place, int]) -> None:
        self._file = file
        self._lines = lines

    def at(self, place: Place, problem: str) -> ConfigurationError:
        """An error at a place."""
        return ConfigurationError(f"{self._file}, line {line_of(self._lines, place)}: {problem}")

    def wrong(self, place: Place, value: object, problem: object) -> ConfigurationError:
        """An error about a value, in one line, with a right example of its key."""
        key = str(next((part for part in reversed(place) if isinstance(part, str)), ""))
        text = str(problem).partition("\n")[0].removeprefix(f"{value!r}: ")
        if key in EXAMPLES:
            of_python = _EXAMPLE_OF_PYTHON.fullmatch(text)
            text = f"{(of_python[1] if of_python else text).rstrip('.')}: {EXAMPLES[key]}"
        return self.at(place, f"{key} = {shown(value)}: {text.rstrip('.')}")

    def given_twice(self, name: str, value: object, own: object) -> ConfigurationError:
        """An error about an option that the program gives as well."""
        problem = f"the program gives it, too, {name}={own!r}: remove one of them"
        return self.at((name,), f"{name} = {shown(value)}: {problem}")

    def no_tiers(self, place: Place, value: object) -> ConfigurationError:
        """An error about a tier in a file without any."""
        return self.at(place, f"tier = {shown(value)}: there are no tiers: {EXAMPLES['tiers']}")

    def misplaced(self, place: Place, key: str) -> ConfigurationError:
        """An error about an option of the middleware that stands in a table."""
        return self.at(place, f"what is for all requests stands above the first [table]: {EXAMPLES[key]}")

    def misnamed_tiers(self, place: Place) -> ConfigurationError:
        """An error about a table ``[tier.plan]``."""
        return self.at(place, f"tier names one of the tables of tiers: {EXAMPLES['tiers']}")

    def unknown(self, place: Place, key: str, valid: Iterable[str]) -> ConfigurationError:
        """An error about a key that does not exist."""
        if key == "store":
            return self.at(place, f"there is no key 'store', for all limits have the store of the middleware: {_STORE}")
        listed = sorted(valid)
        hint = did_you_mean(key, listed)
        example = f": {EXAMPLES[hint[1]]}" if hint[1] in EXAMPLES else f": the keys here are {', '.join(listed)}"
        return self.at(place, f"there is no key {key!r}{hint[0]}{example}")


_UNQUOTED = re.compile(r"""\s*([\w-]+)\s*=\s*([^\s="'\[{#][^"'#]*?)\s*(?:#.*)?""")


def unquoted(line: str) -> str:
    """What a line that is not valid TOML may lack, if it is a text without quotes; otherwise an empty text."""
    match = _UNQUOTED.fullmatch(line)
    if match is None:
        return ""
    key, value = match.groups()
    if value.lower() in ("true", "false"):
        return f", true and false have small letters: {key} = {value.lower()}"
    return f', a text has quotes: {key} = "{value}"'


def did_you_mean(word: str, valid: Iterable[str]) -> tuple[str, str]:
    """``", did you mean ...?"`` with the nearest valid word, and that word; two empty texts if none is near."""
    near = get_close_matches(word.lower(), valid, 1)
    return (f", did you mean {near[0]!r}?", near[0]) if near else ("", "")


def shown(value: object) -> str:
    """A value, roughly as TOML writes it."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {shown(each)}" for key, each in value.items()) + " }"
    return str(value)
