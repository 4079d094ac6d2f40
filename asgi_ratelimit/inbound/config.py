"""A file of limits: TOML that becomes options and rules of a middleware, and is read again when it has changed.

Errors name the table and the key. The last valid version counts.
"""

from __future__ import annotations

import asyncio
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from stat import S_ISREG
from typing import Any, NamedTuple, TypeAlias
from weakref import ref

from ..argument_errors import checked_flag
from ..buckets import DEFAULT_NAME
from ..counts.repeating import EVERY, Repeating
from ..decision import OnError
from ..errors import ConfigurationError
from ..headers import DialectName, HeaderOptions, header_options
from ..keys import KeyFunction, client_ip, cookie, header, path_param, state, user
from ..keys.base import called
from ..logs import logger
from ..overrides import NO_OVERRIDES, live_overrides
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import Quota
from ..stores import Store
from .delays import MAX_WAITING, checked_max_waiting
from .functions import CostFunction, Failures, QuotaFunction, address_key, require_function
from .penalties import Penalty
from .plan import RuleTable
from .rules import Defaults, Rule


class Item(NamedTuple):
    """An item of an array, by its number from 1, and the name or path of a rule."""

    number: int
    label: str = ""


Place: TypeAlias = tuple[str | Item, ...]
"""The keys and items that lead to a value."""

SETTLED_AFTER = 0.1
"""Seconds for which a file must not change before it is read: somebody may be writing it."""


# Options


@dataclass(frozen=True, slots=True)
class Options:
    """As in ``RateLimitMiddleware``."""

    quota: QuotaLike | QuotaFunction | None
    rules: tuple[Rule, ...]
    key: KeyFunction
    name: str | None
    cost: float | CostFunction
    headers: DialectName | HeaderOptions | None
    on_error: OnError | None
    penalty: Penalty | None
    max_delay: float
    max_waiting: int

    def merged(self, file: str, settings: Mapping[str, Any]) -> Options:
        """These options of the program and those of a file, whose rules come after the program's.

        Raises ``ConfigurationError`` for an option that both give, and for options that do not fit together.
        """
        for name, value in settings.items():
            own, usual = getattr(self, name), getattr(USUAL, name)
            if name != "rules" and own is not usual and own != usual:
                problem = f"{value!r}: the program gives it, too, {name}={own!r}: remove one of them"
                raise error_at(file, (name,), problem)
        options = replace(self, **{**settings, "rules": (*self.rules, *settings["rules"])})
        failure = options.failure()
        if failure is None:
            return options
        for number in reversed(range(len(settings["rules"]))):
            if replace(options, rules=options.rules[: len(self.rules) + number]).failure() is None:
                rule = settings["rules"][number]
                raise error_at(file, ("rules", Item(number + 1, rule.name or rule.path)), failure) from failure
        raise error_at(file, (), failure) from failure

    def failure(self) -> ValueError | None:
        """The reason why these options are invalid, if there is one."""
        try:
            header_options(self.headers)
            checked_max_waiting(self.max_waiting)
            self.table(self.defaults(Failures()), "", None)
        except ValueError as error:
            return error
        return None

    def defaults(self, failures: Failures) -> Defaults:
        """The values that rules have unless they have their own."""
        name = DEFAULT_NAME if self.name is None else self.name
        address = address_key([self.key, *[rule.key for rule in self.rules]])
        return Defaults(name, self.key, self.cost, self.on_error, self.max_delay, fallback=address, failures=failures)

    def table(self, defaults: Defaults, root: str, store: Store | None) -> RuleTable:
        """All rules, under the overrides of a store."""
        overrides = NO_OVERRIDES if store is None else live_overrides(store)
        return RuleTable(self.quota, self.rules, defaults, penalty=self.penalty, root=root, overrides=overrides)


USUAL = Options(None, (), client_ip(), None, 1, "draft-10", None, None, 0.0, MAX_WAITING)
"""The options of a middleware without arguments."""

AT_START = ("name", "headers", "max_waiting")
"""The options that a file can change only for the next start of a program."""


# The content of a file


def settings_of(content: str, file: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The options in the text of a file, by name, and its rules.

    Raises ``ConfigurationError`` with the file, the table and the key.
    """
    try:
        parsed = tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f'{file} is not valid TOML: {error}: quota = "100/minute"') from error
    return _Reader(file, environment).settings(parsed)


def error_at(file: str, place: Place, problem: object) -> ConfigurationError:
    """An error about what is at a place of a file: its first line, as texts of quotas are shown with a mark."""
    where = "".join([f"[{each.number}]" if isinstance(each, Item) else f".{each}" for each in place]).removeprefix(".")
    labels = [f" ({each.label})" for each in place if isinstance(each, Item) and each.label]
    return ConfigurationError(f"{file}{where and ', '}{where}{''.join(labels)}: {str(problem).partition(chr(10))[0]}")


@dataclass(frozen=True, repr=False, eq=False)
class Tier:
    """A quota function: ``function(connection)``, sync or async, returns the name of a tier, ``None`` for no limit.

    ``reference`` is the function as the file names it. Raises ``LookupError`` for a name that no tier has.
    """

    name: str
    reference: str
    function: Callable[[Any], Any]
    quotas: Mapping[str, tuple[Quota, ...]]

    @property
    def __name__(self) -> str:
        return f"tier {self.name}"

    def __repr__(self) -> str:
        return f"tier {self.name} ({', '.join(f'{name} {as_text(quotas)}' for name, quotas in self.quotas.items())})"

    async def __call__(self, connection: Any) -> tuple[Quota, ...] | None:
        tier = await called(self.function, connection)
        if tier is not None and tier not in self.quotas:
            raise LookupError(
                f"{self.reference} returned {tier!r}, and the tiers of {self.name!r} are {[*self.quotas]}"
            )
        return None if tier is None else self.quotas[tier]


_VARIABLE = re.compile(r"\$(\$?)\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?|[^{}]*)\}")

_OF_MIDDLEWARE = {each.name for each in fields(Options)} | {"client_ip", "tier", "tiers"}
_OF_RULE = {each.name for each in fields(Rule)} | {"exempt", "tier"}
_OF_PENALTY = {each.name for each in fields(Penalty) if each.init}
_OF_CLIENT_IP = {"forwarded_header", "ipv6_prefix", "trusted_proxies"}

_KEYS: Mapping[str, Any] = {each.__name__: each for each in (cookie, header, path_param, state, user)}
"""Keys that take a name, ``header:X-Api-Key``; ``user`` has one by default."""


class _Reader:
    """Reads the tables of one file."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._client_ip: KeyFunction = client_ip()
        self._tiers: dict[str, Tier] = {}

    def settings(self, parsed: dict[str, Any]) -> dict[str, Any]:
        table = self._table(self._expanded(parsed, ()), _OF_MIDDLEWARE, ())
        options: dict[str, Any] = {}
        if "client_ip" in table:
            place = ("client_ip",)
            options["key"] = self._client_ip = self._built(client_ip, table.pop("client_ip"), _OF_CLIENT_IP, place)
        for name, tier in self._table(table.pop("tiers", {}), None, ("tiers",)).items():
            self._tiers[name] = self._tier(name, self._table(tier, None, ("tiers", name)))
        listed = table.pop("rules", [])
        options |= self._arguments(table, ())
        for name, value in options.items():
            failure = replace(USUAL, **{"quota": "1/s", name: value}).failure()
            if failure is not None:
                raise error_at(self._file, (name,), failure)
        rules = _items(listed if isinstance(listed, list) else [listed])
        return {**options, "rules": tuple([self._rule(rule, ("rules", item)) for item, rule in rules])}

    def _rule(self, rule: Any, place: Place) -> Any:
        table = self._table(rule, _OF_RULE, place)
        is_exempt = self._read((*place, "exempt"), checked_flag, "exempt", _flag(table.pop("exempt", False)))
        if "path" not in table:
            raise error_at(self._file, place, 'a rule has no path: path = "/login"')
        has_quota = "quota" in table or "tier" in table
        if is_exempt == has_quota and (is_exempt or "messages" not in table):
            problem = 'a rule has either a quota, or a tier, or exempt = true: quota = "3/minute"'
            raise error_at(self._file, place, problem)
        arguments = {"path": table["path"], "quota": None, **self._arguments(table, place)}  # the path is tried first
        return self._called(Rule, arguments, place, path=arguments["path"], quota="1/s")

    def _tier(self, name: str, table: dict[str, Any]) -> Tier:
        place: Place = ("tiers", name)
        if "function" not in table or len(table) == 1:
            problem = 'a tier has a function and quotas: function = "app.limits:plan_of" and free = "10/minute"'
            raise error_at(self._file, place, problem)
        reference = table.pop("function")
        function = self._read((*place, "function"), _tier_function, reference)
        quotas = {each: self._read((*place, each), as_quotas, text) for each, text in table.items()}
        return Tier(name, reference, function, quotas)

    def _arguments(self, table: dict[str, Any], place: Place) -> dict[str, Any]:
        """The arguments that a table gives; a tier is a quota."""
        if "tier" in table and "quota" in table:
            raise error_at(self._file, (*place, "tier"), "a tier takes the place of a quota: remove one of them")
        return {
            "quota" if name == "tier" else name: self._argument(name, value, (*place, name))
            for name, value in table.items()
        }

    def _argument(self, name: str, value: Any, place: Place) -> Any:
        if name == "penalty":
            return self._built(Penalty, value, _OF_PENALTY, place, block_for=60)
        reads = {**_READS, "key": self._key, "tier": self._tier_named}
        return self._read(place, reads[name], value) if name in reads else value

    def _read(self, place: Place, read: Callable[..., Any], *values: Any) -> Any:
        try:
            return read(*values)
        except (ValueError, TypeError) as error:
            raise error_at(self._file, place, error) from error

    def _built(self, build: Callable[..., Any], table: Any, valid: Iterable[str], place: Place, **usual: Any) -> Any:
        """The object that is built from a table with arguments."""
        return self._called(build, self._arguments(self._table(table, valid, place), place), place, **usual)

    def _called(self, build: Callable[..., Any], arguments: Mapping[str, Any], place: Place, **usual: Any) -> Any:
        """The result for these arguments; an error names the first of them that is wrong beside usual ones."""
        try:
            return build(**arguments)
        except (ValueError, TypeError) as error:
            for name, value in arguments.items():
                self._read((*place, name), partial(build, **{**usual, name: value}))
            raise error_at(self._file, place, error) from error

    def _key(self, value: Any) -> Any:
        form, separator, name = _text(value).partition(":")
        if form in _KEYS and (name or form == "user"):
            return _KEYS[form](name) if name else user()
        if value == "client_ip":
            return self._client_ip
        if "." in form and separator:
            return _function(value)
        problem = f"there is no such key as {value!r}{_hint(form, ['client_ip', *_KEYS])}"
        raise ConfigurationError(f"{problem}: client_ip, user, header:X-Api-Key, cookie:session, or app.limits:key_of")

    def _tier_named(self, name: Any) -> Tier:
        if _text(name) not in self._tiers:
            near = _nearest(name, self._tiers)
            right = f'tier = "{near}"' if near else f'[tiers.{name}] with function = "app.limits:plan_of"'
            raise ConfigurationError(f"there is no such tier as {name!r}{_hint(name, self._tiers)}: {right}")
        return self._tiers[name]

    def _table(self, table: Any, valid: Iterable[str] | None, place: Place) -> dict[str, Any]:
        """A copy of a table with valid keys, ``None`` for any."""
        if not isinstance(table, dict):
            raise error_at(self._file, place, f"{table!r} is not a table")
        for key in table:
            if valid is not None and key not in valid:
                problem = f"there is no key {key!r}{_hint(key, valid)}: the keys here are {', '.join(sorted(valid))}"
                raise error_at(self._file, place, problem)
        return {**table}

    def _expanded(self, value: Any, place: Place) -> Any:
        """A value with ``${NAME}`` and ``${NAME:-default}`` replaced; ``$${...}`` stands for ``${...}``."""
        if isinstance(value, dict):
            return {key: self._expanded(each, (*place, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._expanded(each, (*place, item)) for item, each in _items(value)]

        def replaced(match: re.Match[str]) -> str:
            is_literal, name, default = match.groups()
            if is_literal:
                return match[0][1:]
            if name is None:
                raise error_at(self._file, place, f"{match[0]!r} is not a variable: ${{NAME}}, or ${{NAME:-default}}")
            if name not in self._environment and default is None:
                problem = f"the environment variable {name} is not set, and has no default: ${{{name}:-default}}"
                raise error_at(self._file, place, problem)
            return self._environment.get(name) or default or ""

        return _VARIABLE.sub(replaced, value) if isinstance(value, str) else value


def _items(array: Iterable[Any]) -> Iterator[tuple[Item, Any]]:
    """What is in an array, each with its place."""
    for number, each in enumerate(array, 1):
        label = each.get("name") or each.get("path") if isinstance(each, dict) else None
        yield Item(number, label if isinstance(label, str) else ""), each


def _nearest(word: object, valid: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(str(word).lower(), valid, 1)), None)


def _hint(word: object, valid: Iterable[str]) -> str:
    near = _nearest(word, valid)
    return f", did you mean {near!r}?" if near else ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ConfigurationError(f"it must be a string, not {value!r}")


def _function(value: Any) -> Any:
    """The function that ``module:function`` names."""
    module_name, separator, path = _text(value).partition(":")
    if not (module_name and separator and path):
        raise ConfigurationError(f"{value!r} does not name a function: app.limits:plan_of")
    try:
        target: Any = import_module(module_name)
        for part in path.split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        raise ConfigurationError(f"{value!r} cannot be imported ({error})") from error
    return target


def _tier_function(value: Any) -> Any:
    return require_function("function", _function(value), 1, "def plan_of(request)")


def _flag(value: Any) -> Any:
    """``true`` or ``false``, which may come from the environment as a text; anything else is left to its argument."""
    return {"true": True, "false": False}.get(str(value).lower(), value)


def _number(value: Any) -> Any:
    """A number, which may come from the environment as a text; anything else is left to its argument."""
    if isinstance(value, bool):
        raise ConfigurationError(f"it must be a number, not {str(value).lower()}")
    with suppress(ValueError):
        return (float if "." in value else int)(value) if isinstance(value, str) else value
    return value


_READS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("only", "shadow"), _flag),
    **dict.fromkeys(("after", "growth", "ipv6_prefix", "max_delay", "max_waiting"), _number),
    **dict.fromkeys(("settle", "on_limited"), _function),
    "cost": lambda value: _function(value) if ":" in str(value) else _number(value),
    "headers": lambda value: None if value == "none" else value,
    "methods": lambda value: tuple(value) if isinstance(value, list) else value,
}
"""How values of TOML become arguments, where they are not the same; what they are given to checks them."""


# The file, while the program runs


class LimitsFile(Repeating):
    """The options that a file and the program give together. ``of_program`` are those of the program.

    Raises ``ConfigurationError`` for a file that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], of_program: Options) -> None:
        super().__init__(_nothing_to_close)
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(f'config is the path of a file, not {path!r}: config="limits.toml"')
        self._path = os.fspath(path)
        self._of_program = of_program
        self._subscriber: Callable[[], Any] = lambda: None
        self._content = self._read()
        self._seen: str = self._content
        """The content that was read last, or the reason why it could not be read."""
        self.options = self._options_of(self._content)

    @property
    def is_needed(self) -> bool:
        """Whether somebody has these options."""
        return self._subscriber() is not None

    def watch(self, subscriber: Any) -> None:
        """Call ``options_changed(options)`` of a subscriber after each change; it is held weakly.

        It is called from any thread, and raises ``ValueError`` for options that it does not apply.
        """
        self._subscriber = ref(subscriber)
        self.start()

    def is_other_version(self, other: LimitsFile) -> bool:
        """Whether another has read the same file, but not the same version of it."""
        return os.path.abspath(self._path) == os.path.abspath(other._path) and self._content != other._content

    async def run(self) -> float:
        """Read the file, and apply it if it has changed; somebody may be writing it, so it is read twice then."""
        seen = self._readable()
        if seen != self._seen:
            await asyncio.sleep(SETTLED_AFTER)
            if seen != self._readable():
                return SETTLED_AFTER
            self._seen = seen
            self._reload()
        return EVERY

    def _readable(self) -> str:
        try:
            return self._read()
        except ConfigurationError as error:
            return str(error)

    def _reload(self) -> None:
        """Apply the changes, and log each one, or log what is wrong, once for each version of the file."""
        subscriber = self._subscriber()
        if subscriber is None:
            return
        try:
            self._content = self._read()
            options = self._options_of(self._content)
            try:
                subscriber.options_changed(options)
            except ValueError as error:
                raise error_at(self._path, (), error) from error
        except Exception as error:  # noqa: BLE001  # it may import modules of the program
            logger.error("the limits stay as they were: %s", error)
            return
        before, self.options = self.options, options
        for change in changes(before, options):
            logger.warning("%s: %s", self._path, change)

    def _options_of(self, content: str) -> Options:
        return self._of_program.merged(self._path, settings_of(content, self._path, os.environ))

    def _read(self) -> str:
        where = os.path.abspath(self._path)
        try:
            if not S_ISREG(os.stat(where).st_mode):  # to open a pipe could block for ever
                raise ConfigurationError(f'{where} is no file: config="limits.toml"')
            with open(where, encoding="utf-8-sig") as file:
                content = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f'{where} cannot be read: {reason}: config="limits.toml"') from error
        if all(line.strip()[:1] in ("", "#") for line in content.splitlines()):
            raise ConfigurationError(f'{self._path} is empty, or has nothing but comments: quota = "100/minute"')
        return content


async def _nothing_to_close() -> None:
    """A file is closed as soon as it is read."""


def changes(old: Options, new: Options) -> Iterator[str]:
    """One line for each option of the middleware and each argument of a rule that differs."""
    before, after = _texts(old), _texts(new)
    for what, text in before.items():
        if what not in after and what.endswith(_QUOTA):
            yield f"{what.removesuffix(_QUOTA)} is gone: {text}"
    for what, text in after.items():
        if what not in before and what.endswith(_QUOTA):
            yield f"{what.removesuffix(_QUOTA)} is new: {text}"
        elif what in before and before[what] != text:
            later = ", from the next start on" if what in AT_START else ""
            yield f"{what} {before[what]} -> {text}{later}"


_QUOTA = ": quota"


def _texts(options: Options) -> dict[str, str]:
    """All options and arguments of rules as text, by what they are: ``quota``, ``login: quota``."""
    texts = {each.name: _shown(getattr(options, each.name)) for each in fields(Options) if each.name != "rules"}
    numbers: Counter[str] = Counter()
    for rule in options.rules:
        name = rule.name or " ".join([*sorted(rule.methods or ()), rule.path])
        numbers[name] += 1
        name = name if numbers[name] == 1 else f"{name} {numbers[name]}"
        texts |= {f"{name}: {each.name}": _shown(getattr(rule, each.name)) for each in fields(Rule)}
    return texts


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and value and hasattr(value[0], "period"):
        return as_text(value)
    return "none" if value is None else value if isinstance(value, str) else repr(value)
