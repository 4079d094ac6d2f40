"""Path patterns in Starlette's own syntax, matched in linear time, and the part of a path that they apply to.

Clients choose the paths, which may have any length, so no pattern may take time that grows faster than the path. Of
several wildcards in a segment, each has as little as possible, and gives nothing back: where a path matches in some
way, it matches in this. Any other wildcard is *floating* if its end is not determined by its start, as ``{a:path}`` in
``/{a:path}-{b}``: it has to be tried with several ends. Each further wildcard then runs from each of these ends. It is
harmless only if the text between them has a character at which it stops, such as ``/``, because then no two of these
runs overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from uuid import UUID

from starlette import routing
from starlette.applications import Starlette
from starlette.convertors import CONVERTOR_TYPES, Convertor
from starlette.types import Scope

from ..errors import ConfigurationError

Convertors = dict[str, Convertor[Any]]

_SEGMENT, _REST, _INT, _FLOAT = "[^/]+", ".*", "[0-9]+", r"[0-9]+(\.[0-9]+)?"
_UUID = "[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
# The characters of a wildcard of each kind. A kind of the app's own counts as a part of a segment.
_CHARACTERS = {_SEGMENT: "[^/]", _REST: r"[\s\S]", _INT: "[0-9]", _FLOAT: "[0-9.]"}


# A wildcard of a segment and the text between it and the next one, in the pattern of a path.
_SHARED = re.compile(r"\(\?P<\w+>\[\^/\]\+\)((?:\\.|[^/()\\])*)(?=\(\?P<\w+>\[\^/\]\+\))")


def route_path(scope: Scope) -> str:
    """The path below the root path, against which the routes of this app, mounted or not, are matched."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    if root and below == path and normalised(path).startswith(f"{root}/"):
        return "/" + normalised(path).removeprefix(root)  # with one slash more than as normalised, as it came otherwise
    return below if not below or below.startswith("/") else path


# What a path of another syntax has: ``/files/*``, ``/users/<id>``, ``/users/:id``, a query, or a regular expression.
_FOREIGN = re.compile(r"[{}*<>?#\\]|(?<=/):|(?<=[^/])\$$|\s$|(?<=[\])])\+|\(.*\||\.\+|/\^|%[0-9A-Fa-f]{2}")

# Finds what apps may read in another way than routers do.
_OTHERWISE = re.compile(r"//|/\.|^(?!/)")

# The start of a target in absolute form, as in ``http://shop/login``.
_ABSOLUTE = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*")


def normalised(path: str) -> str:
    """A path as apps behind a router may read it: from a slash on, without doubled slashes or dot segments."""
    if _OTHERWISE.search(path) is None:
        return path
    segments: list[str] = []
    for segment in _ABSOLUTE.sub("", path).split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    is_folder = path.endswith(("/", "/.", "/..")) and segments
    return "/" + "/".join(segments) + ("/" if is_folder else "")


def readings(path: str) -> list[str]:
    """The ways in which apps may read a path: as it came, normalised, and without the slash at its end."""
    plain = normalised(path)
    return list(dict.fromkeys([path, plain, plain[:-1] if len(plain) > 1 and plain.endswith("/") else plain]))


MAX_DEPTH = 100  # how many nested apps are followed before they are taken for a cycle


def nested_apps(app: object) -> Iterator[object]:
    """An app and those inside of it, whatever middlewares they are."""
    for _ in range(MAX_DEPTH):
        yield app
        app = getattr(app, "app", None)


def own_root_path(app: object) -> str:
    """The root path that an app behind any middlewares sets by itself, as ``FastAPI(root_path="/api")`` does."""
    apps = [each for each in nested_apps(app) if isinstance(each, Starlette)]  # that of Flask and Quart is a folder
    return str(getattr(apps[0], "root_path", "")) if apps else ""


def compile_path(path: str) -> tuple[re.Pattern[str], Convertors]:
    """The pattern of a path and the convertors of its parameters. Raises ``ConfigurationError`` for an invalid path."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigurationError(f'the path of a rule starts with "/", not {path!r}: Rule("/users/{{id}}", ...)')
    try:
        pattern, _, convertors = routing.compile_path(path)
        return re.compile(pattern.pattern, re.DOTALL), convertors  # a newline must not lead past a rule
    except (AssertionError, KeyError, ValueError) as error:
        raise ConfigurationError(f'{path!r} is not a valid path: {error}: Rule("/users/{{id:int}}", ...)') from error


def compile_rule_path(path: str, root: str = "") -> tuple[re.Pattern[str], Convertors]:
    """The pattern of a rule, which takes linear time, and the convertors of its parameters.

    ``root`` is the root path that the app sets by itself: a rule may include it, and is matched below it either way.
    Raises ``ConfigurationError`` for an invalid path, and for one that cannot be matched in linear time.
    """
    pattern, convertors = compile_path(path)
    foreign = _FOREIGN.search(routing.PARAM_REGEX.sub("x", path))
    if foreign is not None:  # Starlette would match it as it is
        problem = f"{path!r} has a {foreign[0]!r} that is part of no parameter, and would stand for itself"
        raise ConfigurationError(f'{problem}: Rule("/users/{{id}}", ...), Rule("/files/{{rest:path}}", ...)')
    if root and path.startswith(f"{root}/"):
        prefix, path = f"(?:{re.escape(root)})?", path.removeprefix(root)
        below, _ = compile_path(path)
        pattern = re.compile("^" + prefix + below.pattern.removeprefix("^"), re.DOTALL)
    pattern = re.compile(_SHARED.sub(r"(?>[^/]+?\1)", pattern.pattern), re.DOTALL)
    if _is_linear(re.sub(r"\{\w+\}[^/{}]*(?=\{\w+\})", "", path), convertors):
        rest = re.search(r"(?<!\^)/(\(\?P<\w+>\.\*\))\$$", pattern.pattern)  # the folder itself is in it, too
        if rest is not None and ".*" not in pattern.pattern[: rest.start()]:
            pattern = re.compile(f"{pattern.pattern[: rest.start()]}(?:/{rest[1]})?$", re.DOTALL)
        return pattern, convertors
    raise ConfigurationError(
        f"matching {path!r} could take very long, because where one of its parameters ends can be tried in too many "
        'ways: put a "/" between them, or write one parameter instead of several, Rule("/files/{rest:path}", ...)'
    )


def _is_linear(path: str, convertors: Convertors) -> bool:
    """Whether a backtracking matcher takes linear time: see the top of this module."""
    floats, end = False, 0
    for parameter in routing.PARAM_REGEX.finditer(path):
        kind, between, end = convertors[parameter[1]].regex, path[end : parameter.start()], parameter.end()
        if kind == _UUID or (kind == _REST and end == len(path)):  # the rest of a path always matches
            continue
        characters = re.compile(_CHARACTERS.get(kind, _CHARACTERS[_SEGMENT]))
        if floats and all(map(characters.match, between)):
            return False
        next_one = path[end : end + 1]
        floats = floats or next_one in ("", "{") or characters.match(next_one) is not None
    return True


def wider_than(path: str, others: Iterable[str]) -> str | None:
    """The first of other paths that takes more texts as a number or UUID of this one, unless one is just like it."""
    kinds, shape = _kinds(path), routing.PARAM_REGEX.sub("", path)
    alike = [each for each in others if routing.PARAM_REGEX.sub("", each) == shape]
    if any(_kinds(each) == kinds for each in alike):
        return None
    wide = {(text, number) for text in ("", ":str") for number in (":int", ":float", ":uuid")}
    return next((each for each in alike if not wide.isdisjoint(zip(_kinds(each), kinds))), None)


def _kinds(path: str) -> list[str]:
    return [kind for _, kind in routing.PARAM_REGEX.findall(path)]


# Examples of paths


_EXAMPLES: dict[str, Any] = {"int": 987654321, "float": 98765.5, "uuid": UUID(int=2**127)}


@lru_cache(maxsize=4096)
def example_path(path: str) -> str | None:
    """A path that this template matches, and hardly any other does; ``None`` if that is uncertain.

    So it is for a parameter of an unknown kind, and for two of one name, one of a mount and one within it.
    """
    try:
        _, _, convertors = routing.compile_path(path)
    except ValueError:
        return None
    values = {}
    for name, convertor in convertors.items():
        kind = next((kind for kind, other in CONVERTOR_TYPES.items() if other is convertor), None)
        if kind not in ("str", "path", *_EXAMPLES):
            return None
        values[name] = convertor.to_string(_EXAMPLES.get(kind, f"any.{name}"))
    return routing.PARAM_REGEX.sub(lambda parameter: values[parameter[1]], path)
