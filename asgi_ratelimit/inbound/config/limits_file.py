"""A file of limits: TOML that becomes the options and rules of a middleware. Errors name the table and the key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import isawaitable
from typing import Any, TypeAlias

from ... import keys
from ...decision import checked_cost
from ...errors import ConfigurationError
from ...keys import KeyFunction, client_ip
from ...keys.path_patterns import compile_rule_path
from ...limiter import checked_name
from ...quota_text import as_quotas, as_text
from ...quotas import Quota
from ..delays import checked_max_delay, checked_max_waiting
from ..functions import checked_cost_or_function, checked_key, require_function, takes_bytes
from ..penalties import Penalty
from ..responses.refusal_answers import checked_on_limited
from ..rules import Rule, as_methods

Place: TypeAlias = tuple[str | int, ...]
"""The keys that lead to a value, with numbers from 0 for the tables of an array."""

Read: TypeAlias = Callable[[Any], Any]
"""From a value of TOML to an argument; raises ``ValueError`` or ``TypeError`` for a wrong one."""

_VARIABLE = re.compile(r"\$(\$?)\{([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)

_KEYS: Mapping[str, Callable[..., KeyFunction]] = {
    "cookie": keys.cookie,
    "header": keys.header,
    "path_param": keys.path_param,
    "state": keys.state,
    "user": keys.user,
}
"""Keys that take a name, ``header:X-Api-Key``; ``user`` has one by default."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of a file: ``options`` of the middleware by name, and rules."""

    file: str
    options: Mapping[str, Any]
    rules: tuple[Rule, ...]


def settings_of(content: str, file: str, environment: Mapping[str, str]) -> Settings:
    """The settings in the text of a file. Raises ``ConfigurationError`` with the file, the table and the key."""
    try:
        parsed = tomllib.loads(content)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f'{file} is not valid TOML: {error}: quota = "100/minute"') from error
    return _Reader(file, environment).settings(parsed)


def error_at(file: str, place: Place, problem: object) -> ConfigurationError:
    """An error about what is at a place of a file."""
    where = "".join([f"[{each + 1}]" if isinstance(each, int) else f".{each}" for each in place]).removeprefix(".")
    return ConfigurationError(f"{file}{where and ', '}{where}: {problem}")


def shown(value: object) -> str:
    """A value, roughly as TOML writes it."""
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True, repr=False)
class Tier:
    """A quota function: ``function(connection)``, sync or async, returns the name of a tier, ``None`` for no limit.

    Raises ``KeyError`` for a name that no tier has.
    """

    name: str
    function: Callable[[Any], Any]
    quotas: Mapping[str, tuple[Quota, ...]]

    @property
    def __name__(self) -> str:
        return f"tier {self.name}"

    def __repr__(self) -> str:
        return f"tier {self.name} ({', '.join(f'{name} {as_text(quotas)}' for name, quotas in self.quotas.items())})"

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, connection: Any) -> tuple[Quota, ...] | Awaitable[tuple[Quota, ...] | None] | None:
        returned = self.function(connection)
        return self._awaited(returned) if isawaitable(returned) else self._quotas(returned)

    async def _awaited(self, returned: Awaitable[Any]) -> tuple[Quota, ...] | None:
        return self._quotas(await returned)

    def _quotas(self, tier: str | None) -> tuple[Quota, ...] | None:
        if tier is None:
            return None
        if tier not in self.quotas:
            raise KeyError(f"{self.function!r} returned {tier!r}, and the tiers of {self.name!r} are {[*self.quotas]}")
        return self.quotas[tier]


class _Reader:
    """Reads the tables of one file."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment
        self._client_ip: KeyFunction = client_ip()
        self._tiers: dict[str, Tier] = {}

    def settings(self, parsed: dict[str, Any]) -> Settings:
        self._require_known(parsed, {*_OF_MIDDLEWARE, "client_ip", "tiers", "rules", "penalty", "key", "tier"}, ())
        options: dict[str, Any] = {}
        if "client_ip" in parsed:
            options["key"] = self._client_ip = self._built(client_ip, _OF_CLIENT_IP, parsed["client_ip"], "client_ip")
        for name, table in self._table(parsed.get("tiers", {}), ("tiers",)).items():
            self._tiers[name] = self._tier(name, self._table(table, ("tiers", name)))
        options |= self._arguments(parsed, _OF_MIDDLEWARE, ())
        listed = parsed.get("rules", [])
        if not isinstance(listed, list):
            raise error_at(self._file, ("rules",), 'rules are tables: [[rules]] with path = "/login"')
        rules = [self._rule(self._table(rule, ("rules", at)), ("rules", at)) for at, rule in enumerate(listed)]
        return Settings(self._file, options, tuple(rules))

    def _rule(self, table: dict[str, Any], place: Place) -> Rule:
        self._require_known(table, {*_OF_RULE, "penalty", "key", "tier"}, place)
        arguments = self._arguments(table, _OF_RULE, place)
        if "path" not in arguments:
            raise error_at(self._file, place, 'a rule has no path: path = "/login"')
        is_exempt = arguments.pop("exempt", False)
        if is_exempt == ("quota" in arguments) and not ("messages" in arguments and not is_exempt):
            problem = 'a rule has either a quota, or a tier, or exempt = true: quota = "3/minute"'
            raise error_at(self._file, place, problem)
        try:
            return Rule(arguments.pop("path"), arguments.pop("quota", None), **arguments)
        except ValueError as error:
            raise error_at(self._file, place, error) from error

    def _arguments(self, table: dict[str, Any], reads: Mapping[str, Read], place: Place) -> dict[str, Any]:
        """The arguments that a table gives, with its key, tier and penalty."""
        reads = {**reads, "key": self._key, "tier": self._tier_named}
        arguments = {
            name: self._read(reads[name], value, (*place, name)) for name, value in table.items() if name in reads
        }
        if "penalty" in table:
            arguments["penalty"] = self._built(Penalty, _OF_PENALTY, table["penalty"], *place, "penalty")
        if "tier" in table:
            if "quota" in table:
                raise error_at(self._file, (*place, "tier"), "a tier takes the place of a quota: remove one of them")
            arguments["quota"] = arguments.pop("tier")
        return arguments

    def _key(self, value: Any) -> KeyFunction:
        form, separator, name = _text(value).partition(":")
        if form in _KEYS and (name or form == "user"):
            return _KEYS[form](name) if name else keys.user()
        if form == "client_ip" and not separator:
            return self._client_ip
        if not separator or "." not in form:
            raise ConfigurationError(
                f"there is no such key{_hint(form, ['client_ip', *_KEYS])}: client_ip, user, header:X-Api-Key, "
                "cookie:session, path_param:id, state:tenant, or app.limits:key_of"
            )
        return checked_key(_function(value))

    def _tier_named(self, name: Any) -> Tier:
        tier = self._tiers.get(_text(name))
        if tier is None:
            problem = f"there is no such tier{_hint(name, self._tiers)}"
            raise ConfigurationError(f'{problem}: [tiers.{name}] with function = "app.limits:plan_of"')
        return tier

    def _tier(self, name: str, table: dict[str, Any]) -> Tier:
        place: Place = ("tiers", name)
        if "function" not in table or len(table) == 1:
            problem = 'a tier has a function and quotas: function = "app.limits:plan_of" and free = "10/minute"'
            raise error_at(self._file, place, problem)
        function = self._read(_tier_function, table["function"], (*place, "function"))
        quotas = {
            each: as_quotas(self._read(_quota, value, (*place, each)))
            for each, value in table.items()
            if each != "function"
        }
        return Tier(name, function, quotas)

    def _built(self, build: Callable[..., Any], reads: Mapping[str, Read], table: Any, *place: str | int) -> Any:
        """The object that is built from a table with arguments."""
        table = self._table(table, place)
        self._require_known(table, reads, place)
        arguments = {name: self._read(reads[name], value, (*place, name)) for name, value in table.items()}
        try:
            return build(**arguments)
        except (ValueError, TypeError) as error:
            raise error_at(self._file, place, error) from error

    def _read(self, read: Read, value: Any, place: Place) -> Any:
        value = self._with_environment(value, place)
        try:
            return read(value)
        except (ValueError, TypeError) as error:
            problem = str(error).partition("\n")[0].removeprefix(f"{value!r}: ")
            raise error_at(self._file, place, f"{shown(value)}: {problem}") from error

    def _with_environment(self, value: Any, place: Place) -> Any:
        """A value with ``${NAME}`` and ``${NAME:-default}`` replaced; ``$${...}`` stands for ``${...}``."""
        if isinstance(value, list):
            return [self._with_environment(each, place) for each in value]

        def replaced(match: re.Match[str]) -> str:
            variable = _NAME.fullmatch(match[2])
            if match[1]:
                return match[0][1:]
            if variable is None:
                raise error_at(self._file, place, f"{match[0]!r} is not a variable: ${{NAME}}, or ${{NAME:-default}}")
            name, default = variable.groups()
            if name not in self._environment and default is None:
                problem = f"the environment variable {name} is not set, and has no default: ${{{name}:-default}}"
                raise error_at(self._file, place, problem)
            return self._environment.get(name) or default or ""

        return _VARIABLE.sub(replaced, value) if isinstance(value, str) else value

    def _table(self, table: Any, place: Place) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise error_at(self._file, place, f"{shown(table)}: it is not a table")
        return table

    def _require_known(self, table: Mapping[str, Any], valid: Iterable[str], place: Place) -> None:
        for key in table:
            if key not in valid:
                problem = f"there is no key {key!r}{_hint(key, valid)}: the keys here are {', '.join(sorted(valid))}"
                raise error_at(self._file, place, problem)


def _hint(word: object, valid: Iterable[str]) -> str:
    near = get_close_matches(str(word).lower(), valid, 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ConfigurationError("it must be a string")


def _flag(value: Any) -> bool:
    """``true`` or ``false``, which may come from the environment as a text."""
    word = str(value).lower()
    if word in ("true", "false"):
        return word == "true"
    raise ConfigurationError("it is neither true nor false")


def _number(value: Any) -> float:
    """A number, which may come from the environment as a text."""
    try:
        number = float(value) if "." in str(value) else int(value)
    except (ValueError, TypeError):
        raise ConfigurationError("it is not a number") from None
    if isinstance(value, bool):
        raise ConfigurationError("it is not a number")
    return number


def _quota(value: Any) -> Any:
    if isinstance(value, list):
        return as_quotas([_text(each) for each in value])
    as_quotas(_text(value))
    return value


def _function(value: Any) -> Any:
    """The function that ``module:function`` names."""
    module_name, separator, path = _text(value).partition(":")
    if not (module_name and separator and path):
        raise ConfigurationError("it does not name a function: app.limits:plan_of")
    try:
        target: Any = import_module(module_name)
        for part in path.split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        raise ConfigurationError(f"it cannot be imported ({error})") from error
    return target


def _cost(value: Any) -> Any:
    is_function = isinstance(value, str) and ":" in value
    return checked_cost_or_function(_function(value)) if is_function else checked_cost(_number(value))


def _settle(value: Any) -> Any:
    settle = _function(value)
    takes_bytes(settle)
    return settle


def _methods(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ConfigurationError('it is not a list of methods: ["POST"]')
    as_methods(value)
    return tuple(value)


def _path(value: Any) -> str:
    compile_rule_path(_text(value), "")
    return _text(value)


def _one_of(*words: str) -> Read:
    def word(value: Any) -> str:
        if value in words:
            return str(value)
        raise ConfigurationError(f"it is not one of {', '.join(words)}{_hint(value, words)}")

    return word


def _headers(value: Any) -> Any:
    dialect = _one_of("draft-10", "legacy", "both", "none")(value)
    return None if dialect == "none" else dialect


def _duration(value: Any) -> Any:
    return value if isinstance(value, str) else _number(value)


def _tier_function(value: Any) -> Any:
    return require_function("function", _function(value), 1, "def plan_of(request)")


def _proxies(value: Any) -> Any:
    return value if isinstance(value, str) else tuple(map(_text, value))


_OF_PENALTY: Mapping[str, Read] = {
    "block_for": _duration,
    "after": _number,
    "within": _duration,
    "growth": _number,
    "longest": _duration,
}

_OF_CLIENT_IP: Mapping[str, Read] = {"trusted_proxies": _proxies, "ipv6_prefix": _number, "forwarded_header": _text}

_OF_BOTH: Mapping[str, Read] = {
    "quota": _quota,
    "cost": _cost,
    "name": lambda value: checked_name(_text(value)),
    "on_error": _one_of("local", "allow", "deny"),
    "max_delay": lambda value: checked_max_delay(_number(value)),
}
"""The options that the middleware and a rule have in common, if they are a single value."""

_OF_MIDDLEWARE: Mapping[str, Read] = {
    **_OF_BOTH,
    "headers": _headers,
    "max_waiting": lambda value: checked_max_waiting(_number(value)),  # type: ignore[arg-type]  # it is checked there
}

_OF_RULE: Mapping[str, Read] = {
    **_OF_BOTH,
    "path": _path,
    "methods": _methods,
    "only": _flag,
    "shadow": _flag,
    "exempt": _flag,
    "settle": _settle,
    "on_limited": lambda value: checked_on_limited(_function(value)),
    "messages": _quota,
}
