"""Values of a file of limits: what each key may be, and the argument that a middleware or a rule gets for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from ... import keys
from ...decision import checked_cost
from ...errors import ConfigurationError
from ...keys import KeyFunction
from ...keys.path_patterns import compile_rule_path
from ...limiter import checked_name
from ...quota_text import as_quotas
from ..delays import checked_max_delay, checked_max_waiting
from ..functions.function_arguments import checked_cost_or_function, checked_key, require_function, takes_bytes
from ..penalties.penalty import Penalty
from ..responses.refusal_answers import checked_on_limited
from ..rules import as_methods
from .config_errors import did_you_mean

Read: TypeAlias = Callable[[Any], Any]
"""From a value of TOML to an argument; raises ``ValueError`` or ``TypeError`` for a wrong one."""

KEY_FORMS: Mapping[str, Callable[..., KeyFunction]] = {
    "cookie": keys.cookie,
    "header": keys.header,
    "path_param": keys.path_param,
    "state": keys.state,
}
"""Keys that take a name, ``header:X-Api-Key``."""

_NAMES = {"cookie": "session", "header": "X-Api-Key", "path_param": "id", "state": "tenant"}


def text(value: Any) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise ConfigurationError("it must be a string")


def flag(value: Any) -> bool:
    """``true`` or ``false``, which may come from the environment as a text."""
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ConfigurationError("it is neither true nor false")


def number(value: Any) -> float:
    """A number, which may come from the environment as a text."""
    if isinstance(value, str):
        try:
            return float(value) if "." in value else int(value)
        except ValueError:
            raise ConfigurationError("it is not a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError("it is not a number")
    return value


def quota(value: Any) -> Any:
    """A quota as a text, or several."""
    if isinstance(value, list):
        return as_quotas([text(each) for each in value])
    as_quotas(text(value))
    return value


def function(value: Any) -> Any:
    """The function that ``module:function`` names."""
    module_name, separator, path = text(value).partition(":")
    if not (module_name and separator and path):
        raise ConfigurationError("it does not name a function")
    try:
        target: Any = import_module(module_name)
        for part in path.split("."):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        raise ConfigurationError(f"it cannot be imported ({error})") from error
    return target


def cost(value: Any) -> Any:
    """A number, or the name of a function."""
    if isinstance(value, str) and ":" in value:
        return checked_cost_or_function(function(value))
    return checked_cost(number(value))


def settle(value: Any) -> Any:
    """A function of the status and the headers."""
    settle_function = function(value)
    takes_bytes(settle_function)
    return settle_function


def methods(value: Any) -> Any:
    """A list of HTTP methods."""
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ConfigurationError("it is not a list of methods")
    as_methods(value)
    return tuple(value)


def path(value: Any) -> str:
    """A path in Starlette's syntax."""
    compile_rule_path(text(value), "")
    return text(value)


def key_of(client_ip: KeyFunction) -> Read:
    """A function that reads a key, in which ``client_ip`` means this one."""

    def key(value: Any) -> KeyFunction:
        form, separator, name = text(value).partition(":")
        if not separator:
            if form == "client_ip":
                return client_ip
            if form == "user":
                return keys.user()
            if form in KEY_FORMS:
                raise ConfigurationError(f"it lacks a name, {form}:{_NAMES[form]}")
            hint, _ = did_you_mean(form, ["client_ip", "user", *KEY_FORMS])
            raise ConfigurationError(f"there is no such key{hint or ': client_ip and user are, and'}")
        if form == "user":
            return keys.user(name)
        if form in KEY_FORMS:
            return KEY_FORMS[form](name)
        if "." not in form:
            hint, near = did_you_mean(form, [*KEY_FORMS, "user"])
            if near:
                raise ConfigurationError(f"there is no such key{hint}")
        return checked_key(function(value))

    return key


def on_error(value: Any) -> Any:
    """What to do without the store."""
    return _one_of(("local", "allow", "deny"), value)


def headers(value: Any) -> Any:
    """A dialect of headers; ``"none"`` for no headers."""
    dialect = _one_of(("draft-10", "legacy", "both", "none"), value)
    return None if dialect == "none" else dialect


def _one_of(words: Sequence[str], value: Any) -> str:
    if value in words:
        return str(value)
    hint, _ = did_you_mean(str(value), words)
    raise ConfigurationError(f"it is not one of {', '.join(words)}{hint}")


def duration(value: Any) -> Any:
    """A text such as ``"10 minutes"``, or seconds."""
    return value if isinstance(value, str) else number(value)


def tier_function(value: Any) -> Any:
    """A function of the connection that returns the name of a tier."""
    return require_function("function", function(value), 1, "def plan_of(request)")


def proxies(value: Any) -> Any:
    """Networks, or the name of a CDN."""
    return value if isinstance(value, str) else tuple(map(text, value))


OF_PENALTY: Mapping[str, Read] = {
    "block_for": duration,
    "after": number,
    "within": duration,
    "growth": number,
    "longest": duration,
}

OF_CLIENT_IP: Mapping[str, Read] = {"trusted_proxies": proxies, "ipv6_prefix": number, "forwarded_header": text}

OF_BOTH: Mapping[str, Read] = {
    "quota": quota,
    "cost": cost,
    "name": lambda value: checked_name(text(value)),
    "on_error": on_error,
    "max_delay": lambda value: checked_max_delay(number(value)),
}
"""The options that the middleware and a rule have in common, if they are a single value."""

OF_MIDDLEWARE: Mapping[str, Read] = {
    **OF_BOTH,
    "headers": headers,
    "max_waiting": lambda value: checked_max_waiting(number(value)),  # type: ignore[arg-type]  # it is checked there
}

OF_RULE: Mapping[str, Read] = {
    **OF_BOTH,
    "path": path,
    "methods": methods,
    "only": flag,
    "shadow": flag,
    "exempt": flag,
    "settle": settle,
    "on_limited": lambda value: checked_on_limited(function(value)),
    "messages": quota,
}


def penalty(arguments: Mapping[str, Any]) -> Penalty:
    """A penalty with these arguments."""
    if "block_for" not in arguments:
        raise ConfigurationError("block_for is missing")
    return Penalty(**arguments)
