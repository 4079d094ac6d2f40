"""A file of limits: TOML that becomes options and rules of a middleware, and is read again when it has changed.

Errors name the table and the key. The last valid version counts.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from pkgutil import resolve_name
from typing import Any
from weakref import ref

from ..background import EVERY, Repeating
from ..errors import ConfigurationError, checked_flag
from ..headers.header_rendering import header_options
from ..keys import KeyFunction, client_ip, cookie, header, path_param, state, user
from ..keys.base import called
from ..logs import logger
from ..quota_text import as_quotas
from ..quotas import Quota
from .delays import require_waiting
from .penalties import Penalty
from .plan import USUAL, Options, RuleTable
from .rules import Rule
from .user_functions import Failures, require_function

SETTLED_AFTER = 0.1  # seconds for which a file must not change before it is read: somebody may be writing it


AT_START = ("name", "headers", "max_waiting")  # the options that a file can change only for the next start of a program


# The content of a file


class Tier:
    """A quota function: ``function(connection)``, sync or async, returns the name of a tier, ``None`` for no limit.

    Raises ``LookupError`` for a name that no tier has.
    """

    def __init__(self, name: str, function: Callable[[Any], Any], quotas: Mapping[str, tuple[Quota, ...]]) -> None:
        self.__name__ = f"tier {name}"
        self.quotas = quotas
        self._function = function

    def __repr__(self) -> str:
        return self.__name__

    async def __call__(self, connection: Any) -> tuple[Quota, ...] | None:
        tier = await called(self._function, connection)
        if tier is None:
            return None
        if tier not in self.quotas:
            raise LookupError(f"{self.__name__} has {[*self.quotas]}, but its function returned {tier!r}")
        return self.quotas[tier]


def options_in(content: str, file: str, of_program: Options) -> Options:
    """The options of the program and those in the text of a file, whose rules come after the program's.

    Raises ``ConfigurationError`` with the file, the table and the key.
    """
    reader = _Reader()
    try:
        return reader.options(tomllib.loads(content), of_program)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f'{file} is not valid TOML: {error}: quota = "100/minute"') from error
    except (ValueError, TypeError) as error:
        text = str(error).partition("\n")[0].replace("=True", " = true")  # as TOML has it
        raise ConfigurationError(f"{file}{reader.place}: {text}") from error


_USUAL = "1/s; 1 at once"  # the quota beside which each key of a rule is tried alone

_OF_RULE = {each.name for each in fields(Rule)} | {"exempt", "tier"}
_OF_MIDDLEWARE = {each.name for each in fields(Options)} | {"client_ip", "tier", "tiers"}
_OF_PENALTY = {each.name for each in fields(Penalty) if each.init}
_OF_CLIENT_IP = {"forwarded_header", "ipv6_prefix", "nat64", "trusted_proxies"}

# Keys that take a name, `header:X-Api-Key`
_KEYS: Mapping[str, Any] = {each.__name__: each for each in (cookie, header, path_param, state, user)}


class _Reader:
    """Reads the tables of one file."""

    def __init__(self) -> None:
        self._place: list[str] = []  # the keys that lead to what is read, or to the mistake
        self._rule_label = ""
        self._client_ip: KeyFunction = client_ip()
        self._tiers: dict[str, Tier] = {}
        self._used_tiers: set[str] = set()
        # How values of TOML become arguments, where they are not the same; what they are given to checks them
        self._reads: Mapping[str, Callable[[Any], Any]] = {
            "key": self._key,
            "tier": self._tier_named,
            "penalty": lambda table: self._built(Penalty, self._table(table), _OF_PENALTY, block_for=0.1),
            "cost": lambda value: _function(value) if ":" in str(value) else value,
            "headers": lambda value: None if value == "none" else value,
            "settle": _function,
            "on_limited": _function,
        }

    @property
    def place(self) -> str:
        """The place as text, with the name or path of its rule."""
        where, label = ".".join(self._place), f" ({self._rule_label})" if self._rule_label else ""
        return f", {where}{label}" if where else ""

    @contextmanager
    def _at(self, key: str) -> Iterator[None]:
        """What is read here is at this key; after an error, the place is still that of the mistake."""
        self._place.append(key)
        yield
        self._place.pop()

    def options(self, parsed: Any, of_program: Options) -> Options:
        table, given, rules = self._table(parsed), dict[str, Any](), list[Rule]()
        if "client_ip" in table:
            with self._at("client_ip"):
                own = self._table(table.pop("client_ip"))
                given["key"] = self._client_ip = self._built(client_ip, own, _OF_CLIENT_IP)
        with self._at("tiers"):
            for name, tier in self._table(table.pop("tiers", {})).items():
                with self._at(name):
                    self._tiers[name] = self._tier(name, self._table(tier))
        listed = table.pop("rules", [])
        given |= self._built(_checked_options, table, _OF_MIDDLEWARE)
        for number, rule in enumerate(listed if isinstance(listed, list) else [listed], 1):
            with self._at(f"rules[{number}]"):
                rules.append(self._rule(rule))
            self._rule_label = ""
        for name in self._tiers.keys() - self._used_tiers:
            raise ConfigurationError(f'nothing has the tier {name!r}: tier = "{name}", instead of a quota')
        for name in given:
            own = getattr(of_program, name)
            with self._at(name):
                if own != getattr(USUAL, name):
                    raise ConfigurationError(f"the program gives it, too, {name}={own!r}: remove one of them")
        options = replace(of_program, **given, rules=(*of_program.rules, *rules))
        RuleTable(options, Failures())
        return options

    def _rule(self, parsed: Any) -> Rule:
        self._rule_label = str(parsed.get("name") or parsed.get("path", "")) if isinstance(parsed, dict) else ""
        table = self._table(parsed)
        _require_keys(table, _OF_RULE)
        with self._at("exempt"):
            is_exempt = checked_flag("exempt", table.pop("exempt", False))
        if is_exempt == ("quota" in table or "tier" in table):
            raise ConfigurationError('a rule has either a quota, or a tier, or exempt = true: quota = "3/minute"')
        path = table.pop("path", None)  # it is tried first
        built: Rule = self._built(partial(Rule, quota=None), {"path": path, **table}, _OF_RULE, path=path, quota=_USUAL)
        return built

    def _tier(self, name: str, table: dict[str, Any]) -> Tier:
        with self._at("function"):
            if "function" not in table:
                raise ConfigurationError('a tier has a function, which names it: function = "app.limits:plan_of"')
            function = require_function("function", _function(table.pop("function")), 1, "def plan_of(request)")
        quotas = {}
        for each, text in table.items():
            with self._at(each):
                quotas[each] = as_quotas(text)
        if not quotas:
            raise ConfigurationError('a tier has quotas, by what its function returns: free = "10/minute"')
        return Tier(name, function, quotas)

    def _built(self, build: Callable[..., Any], table: dict[str, Any], valid: Collection[str], **usual: Any) -> Any:
        """The result for the arguments in a table, each of which is tried alone first, beside usual ones."""
        arguments: dict[str, Any] = {}
        if isinstance(table.get("tier"), str) and "quota" in table:  # anything else is no tier
            raise ConfigurationError("a tier takes the place of a quota: remove one of them")
        _require_keys(table, valid)
        for key, value in table.items():
            name = "quota" if key == "tier" else key
            with self._at(key):
                arguments[name] = self._reads[key](value) if key in self._reads else value
                build(**{**usual, name: arguments[name]})
        return build(**arguments)

    def _key(self, value: Any) -> Any:
        form, _, name = str(value).partition(":")
        if form in _KEYS and name:
            return _KEYS[form](name)
        if value in ("user", "client_ip"):
            return user() if value == "user" else self._client_ip
        hint = _hint(form, {"client_ip", *_KEYS} - {form})
        if name and ("." in form or not hint):
            return _function(value)
        problem = f"there is no such key as {value!r}{hint}"
        raise ConfigurationError(f"{problem}: client_ip, user, header:X-Api-Key, cookie:session, or app.limits:key_of")

    def _tier_named(self, name: Any) -> Tier:
        name = str(name)
        if name not in self._tiers:
            problem = f"there is no such tier as {name!r}{_hint(name, self._tiers)}"
            raise ConfigurationError(f'{problem}: [tiers.plan] with function = "app.limits:plan_of", and tier = "plan"')
        self._used_tiers.add(name)
        return self._tiers[name]

    def _table(self, table: Any) -> dict[str, Any]:
        """A copy of a table, with its variables replaced."""
        if not isinstance(table, dict):
            raise ConfigurationError(f"{table!r} is not a table: [[rules]], penalty = {{ block_for = '1 hour' }}")
        copied = {}
        for key, value in table.items():
            with self._at(key):
                copied[key] = _expanded(value)
        return copied


def _require_keys(table: Iterable[str], valid: Collection[str]) -> None:
    for key in table:
        if key not in valid:
            problem = f"there is no key {key!r}{_hint(key, valid)}"
            raise ConfigurationError(f"{problem}: the keys here are {', '.join(sorted(valid))}")


def _checked_options(**given: Any) -> dict[str, Any]:
    """These options of a middleware, where all else is as usual; ``ValueError`` for wrong ones."""
    options = replace(USUAL, **{"quota": "1/s", **given})
    header_options(options.headers)
    require_waiting(options.max_waiting)
    RuleTable(options, Failures())
    return given


_VARIABLE = re.compile(r"\$\{([^{}:]*)(?::-([^{}]*))?\}")


def _expanded(value: Any) -> Any:
    """A text, or texts, with ``${NAME}`` and ``${NAME:-default}`` replaced; what is a number or a flag then is one."""
    if isinstance(value, list):
        return [_expanded(each) for each in value]
    if not isinstance(value, str) or _VARIABLE.search(value) is None:
        return value
    text = _VARIABLE.sub(_variable, value)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _variable(match: re.Match[str]) -> str:
    name, default = match.groups()
    value = os.environ.get(name) or default
    if value is None:
        raise ConfigurationError(f"the variable {name} is not set, and has no default: ${{{name}:-default}}")
    return value


def _hint(word: object, valid: Iterable[str]) -> str:
    near = get_close_matches(str(word).lower(), valid, 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _function(value: Any) -> Any:
    """The function that ``module:function`` names."""
    try:
        return resolve_name(str(value))
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        raise ConfigurationError(f"{value!r} cannot be imported ({error}): app.limits:plan_of") from error


# The file, while the program runs


class LimitsFile(Repeating):
    """The options that a file and the program give together. ``of_program`` are those of the program.

    Raises ``ConfigurationError`` for a file that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], of_program: Options) -> None:
        super().__init__(lambda: None)
        self._path = path
        self._of_program = of_program
        # The content at the last look, and that which was read; or the reason why there is none
        self._seen = self._applied = self._read()
        self.options = options_in(self._applied, str(path), of_program)

    def watch(self, subscriber: Any) -> None:
        """Call ``options_changed(options)`` of a subscriber after each change; it is held weakly.

        It is called from any thread, and raises ``ValueError`` for options that it does not apply. ``limit_texts()``
        are the limits that it has, by name.
        """
        self._owner = ref(subscriber)
        self.start()

    def is_like(self, other: Any) -> bool:
        """Whether another middleware reads the same file, perhaps not the same version of it yet."""
        file: LimitsFile | None = getattr(other, "_file", None)
        return file is not None and os.path.abspath(self._path) == os.path.abspath(file._path)

    async def run(self) -> float:
        """Apply the file if it has changed, and is the same at two looks: somebody may be writing it."""
        before, error = self._seen, None
        try:
            self._seen = self._read()
        except ConfigurationError as unreadable:
            self._seen, error = str(unreadable), unreadable
        if self._seen != before:
            return SETTLED_AFTER
        if self._seen != self._applied:
            self._applied = self._seen
            self._reload(error)
        return EVERY

    def _reload(self, unreadable: ConfigurationError | None) -> None:
        """Apply and log the changes, or log what is wrong, once for each version of the file."""
        subscriber = self._owner()
        before = subscriber.limit_texts()
        try:
            if unreadable is not None:
                raise unreadable
            subscriber.options_changed(options_in(self._applied, str(self._path), self._of_program))
        except Exception as error:  # noqa: BLE001  # it may import modules of the program
            logger.error("%s changes nothing: %s", self._path, error)
            return
        after = subscriber.limit_texts()
        pairs = [(name, before.get(name, "none"), after.get(name, "none")) for name in before | after]
        changes = "".join([f"; {name}: {old} -> {new}" for name, old, new in pairs if old != new])
        logger.warning("%s: its limits apply from now on%s", self._path, changes)

    def _read(self) -> str:
        try:
            path = os.path.abspath(self._path)
            if os.path.exists(path) and not os.path.isfile(path):
                raise OSError("it is no file")  # to open a pipe waits for somebody who writes
            with open(path, encoding="utf-8-sig") as file:
                content = file.read()
        except (OSError, TypeError, UnicodeDecodeError) as error:
            reason = f"cannot be read in {os.getcwd()}: {getattr(error, 'strerror', None) or error}"
            raise ConfigurationError(f'{self._path!r} {reason}: config="limits.toml"') from error
        if all(line.strip()[:1] in ("", "#") for line in content.splitlines()):
            raise ConfigurationError(f'{self._path} is empty, or has nothing but comments: quota = "100/minute"')
        return content
