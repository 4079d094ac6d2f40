"""Parses a file of limits into options and rules of a middleware; errors say where and what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigurationError
from ...keys import KeyFunction, client_ip
from ...quota_text import as_quotas
from ..rules import Rule
from . import config_values as values
from .config_errors import FileErrors, did_you_mean, unquoted
from .environment import with_environment
from .line_numbers import Place, key_lines
from .tiers import Tier

_LINE = re.compile(r"\(at line (\d+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of a file: ``options`` of the middleware by name, and rules. ``errors`` makes errors about it."""

    options: Mapping[str, Any]
    rules: tuple[Rule, ...]
    errors: FileErrors


def settings_of(content: str, file: str, environment: Mapping[str, str]) -> Settings:
    """The settings in the text of a file. Raises ``ConfigurationError`` with the file, the line and an example."""
    try:
        parsed = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}, {_invalid(content, str(error))}") from error
    except RecursionError as error:
        raise ConfigurationError(f'{file}: its lists are nested too deeply: quota = "100/minute"') from error
    errors = FileErrors(file, key_lines(content))
    return _Reader(with_environment(parsed, environment, errors), errors).settings()


def _invalid(content: str, error: str) -> str:
    """Where and why a text is not valid TOML."""
    match = _LINE.search(error)
    if match is None:
        return f"the last line: not valid TOML: {error}"
    line = content.splitlines()[int(match[1]) - 1 :][:1]
    hint = unquoted(line[0]) if line else ""
    return (
        f"line {match[1]}: {line[0].strip()}: not valid TOML{hint}"
        if hint
        else f"line {match[1]}: not valid TOML: {error}"
    )


class _Reader:
    """Reads the tables of one file."""

    def __init__(self, parsed: dict[str, Any], errors: FileErrors) -> None:
        self._parsed = parsed
        self._errors = errors
        self._client_ip: KeyFunction = client_ip()
        self._tiers: dict[str, Tier] = {}

    def settings(self) -> Settings:
        tables = {"client_ip", "tiers", "rules", "penalty", "key", "tier"}
        self._require_valid_keys(self._parsed, {*values.OF_MIDDLEWARE, *tables}, ())
        options: dict[str, Any] = {}
        if "client_ip" in self._parsed:
            options["key"] = self._client_ip = self._built("client_ip", values.OF_CLIENT_IP, lambda a: client_ip(**a))
        self._tiers = {name: self._tier(name) for name in self._table(("tiers",))}
        options |= self._arguments(self._parsed, values.OF_MIDDLEWARE, ())
        listed = self._parsed.get("rules", [])
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            raise self._errors.wrong(("rules",), listed, "rules are tables")
        rules = tuple([self._rule(rule, ("rules", at)) for at, rule in enumerate(listed)])
        return Settings(options, rules, self._errors)

    def _rule(self, table: dict[str, Any], place: Place) -> Rule:
        self._require_valid_keys(table, {*values.OF_RULE, "penalty", "key", "tier"}, place)
        if "path" not in table:
            raise self._errors.at(place, 'a rule has no path: path = "/login"')
        arguments = self._arguments(table, values.OF_RULE, place)
        is_exempt = arguments.pop("exempt", False)
        if is_exempt == ("quota" in arguments) and not ("messages" in arguments and not is_exempt):
            raise self._errors.at(place, 'a rule has either a quota, or a tier, or exempt = true: quota = "3/minute"')
        try:
            return Rule(arguments.pop("path"), arguments.pop("quota", None), **arguments)
        except ValueError as error:
            raise self._errors.at(place, str(error)) from error

    def _arguments(self, table: dict[str, Any], reads: Mapping[str, values.Read], place: Place) -> dict[str, Any]:
        """The arguments that a table gives, with its key, tier and penalty."""
        reads = {**reads, "key": values.key_of(self._client_ip)}
        arguments = {
            name: self._read(reads[name], value, (*place, name)) for name, value in table.items() if name in reads
        }
        if "penalty" in table:
            arguments["penalty"] = self._built("penalty", values.OF_PENALTY, values.penalty, place)
        if "tier" in table:
            if isinstance(table["tier"], dict):
                raise self._errors.misnamed_tiers((*place, "tier"))
            if "quota" in table:
                raise self._errors.at((*place, "tier"), "a tier takes the place of a quota: remove one of them")
            arguments["quota"] = self._tier_named(table["tier"], (*place, "tier"))
        return arguments

    def _tier_named(self, name: Any, place: Place) -> Tier:
        if isinstance(name, str) and name in self._tiers:
            return self._tiers[name]
        if not self._tiers:
            raise self._errors.no_tiers(place, name)
        hint, _ = did_you_mean(str(name), self._tiers)
        raise self._errors.wrong(place, name, f"there is no such tier{hint}")

    def _tier(self, name: str) -> Tier:
        place: Place = ("tiers", name)
        table = self._table(place)
        if "function" not in table:
            raise self._errors.at(place, 'a tier has no function: function = "app.limits:plan_of"')
        if len(table) == 1:
            raise self._errors.at(place, 'tiers have no quotas: free = "10/minute"')
        function = self._read(values.tier_function, table["function"], (*place, "function"))
        quotas = {
            each: as_quotas(self._read(values.quota, value, (*place, each)))
            for each, value in table.items()
            if each != "function"
        }
        return Tier(name, function, quotas)

    def _built(
        self,
        name: str,
        reads: Mapping[str, values.Read],
        build: Callable[[Mapping[str, Any]], Any],
        place: Place = (),
    ) -> Any:
        """The object that is built from a table with arguments."""
        place = (*place, name)
        table = self._table(place)
        self._require_valid_keys(table, reads, place)
        arguments = {each: self._read(reads[each], value, (*place, each)) for each, value in table.items()}
        return self._read(lambda _: build(arguments), table, place)

    def _table(self, place: Place) -> dict[str, Any]:
        table: Any = self._parsed
        for part in place:
            table = table.get(part, {}) if isinstance(part, str) else table[part]
        if not isinstance(table, dict):
            raise self._errors.wrong(place, table, "it is not a table")
        return table

    def _read(self, read: values.Read, value: Any, place: Place) -> Any:
        try:
            return read(value)
        except (ValueError, TypeError) as error:
            raise self._errors.wrong(place, value, error) from error

    def _require_valid_keys(self, table: dict[str, Any], valid: Iterable[str], place: Place) -> None:
        for key in table:
            if key not in valid and place and key in values.OF_MIDDLEWARE:
                raise self._errors.misplaced((*place, key), key)
            if key not in valid:
                raise self._errors.unknown((*place, key), key, valid)
