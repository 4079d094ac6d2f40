"""Path patterns in Starlette's own syntax, matched in linear time, and the part of a path that they apply to.

Clients choose the paths, which may have any length, so no pattern may take time that grows faster than the path.
A wildcard is *floating* if its end is not determined by its start, as ``{a}`` in ``/{a}-{b}``: it has to be tried with
several ends. Each further wildcard then runs from each of these ends. It is harmless only if the text between them has
a character at which it stops, such as ``/``, because then no two of these runs overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette import routing
from starlette.applications import Starlette
from starlette.convertors import Convertor
from starlette.types import Scope

from ..errors import ConfigurationError

Convertors = dict[str, Convertor[Any]]

_SEGMENT, _REST, _INT, _FLOAT = "[^/]+", ".*", "[0-9]+", r"[0-9]+(\.[0-9]+)?"
_UUID = "[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}"
_CHARACTERS = {_SEGMENT: "[^/]", _REST: r"[\s\S]", _INT: "[0-9]", _FLOAT: "[0-9.]", _UUID: "[^/]"}
"""The characters of a wildcard of each kind. A kind of the app's own counts as a part of a segment."""


class PathPattern(Protocol):
    """A pattern that is matched against whole paths."""

    def match(self, path: str, /) -> Any:
        """The text of each parameter of a path by its name; ``None`` if the path does not match."""


def route_path(scope: Scope) -> str:
    """The path below the root path, against which the routes of this app, mounted or not, are matched."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    return below if not below or below.startswith("/") else path


_FOREIGN = re.compile(r"[{}*<>?#]|(?<=/):")
"""What a path of another syntax has: ``/files/*``, ``/users/<id>``, ``/users/:id``, or a query."""

_OTHERWISE = re.compile(r"//|/\.|^[^/]")
"""Finds what apps may read in another way than routers do."""

_ABSOLUTE = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
"""The start of a target in absolute form, as in ``http://shop/login``."""


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


def own_root_path(app: object) -> str:
    """The root path that an app behind any middlewares sets by itself, as ``FastAPI(root_path="/api")`` does."""
    for _ in range(100):
        if isinstance(app, Starlette):  # the ``root_path`` of Flask and Quart is a folder
            return str(getattr(app, "root_path", ""))
        app = getattr(app, "app", None)
    return ""


def compile_path(path: str) -> tuple[re.Pattern[str], Convertors]:
    """The pattern of a path and the convertors of its parameters. Raises ``ConfigurationError`` for an invalid path."""
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigurationError(f'the path of a rule starts with "/", not {path!r}: Rule("/users/{{id}}", ...)')
    try:
        pattern, _, convertors = routing.compile_path(path)
        return re.compile(pattern.pattern, re.DOTALL), convertors  # a newline must not lead past a rule
    except (AssertionError, KeyError, ValueError) as error:
        raise ConfigurationError(f'{path!r} is not a valid path: {error}: Rule("/users/{{id:int}}", ...)') from error


def compile_rule_path(path: str, root: str = "") -> tuple[PathPattern, Convertors]:
    """The pattern of a rule, which takes linear time, and the convertors of its parameters.

    ``root`` is the root path that the app sets by itself: a rule may include it, and is matched below it either way.
    Raises ``ConfigurationError`` for an invalid path, and for one that cannot be matched in linear time.
    """
    pattern, convertors = compile_path(path)
    foreign = _FOREIGN.search(routing.PARAM_REGEX.sub("", path))
    if foreign is not None:  # Starlette would match it as it is
        problem = f"{path!r} has a {foreign[0]!r} that is part of no parameter, and would stand for itself"
        raise ConfigurationError(f'{problem}: Rule("/users/{{id}}", ...), Rule("/files/{{rest:path}}", ...)')
    if root and path.startswith(f"{root}/"):
        prefix = f"(?:{re.escape(root)})?"
        below, _ = compile_path(path.removeprefix(root))
        pattern = re.compile("^" + prefix + below.pattern.removeprefix("^"), re.DOTALL)
    else:
        root = ""
    parts = _parts(path.removeprefix(root), convertors)
    if _is_linear(parts):
        rest = re.search(r"(?<!\^)/(\(\?P<\w+>\.\*\))\$$", pattern.pattern)  # the folder itself is in it, too
        if rest is not None:
            pattern = re.compile(f"{pattern.pattern[: rest.start()]}(?:/{rest[1]})?$", re.DOTALL)
        return pattern, convertors
    if all(wildcard.kind == _SEGMENT for wildcard in parts.wildcards):
        return _FromTheRight(parts, root), convertors
    raise ConfigurationError(
        f"matching {path!r} could take very long, because where one of its parameters ends can be tried in too many "
        'ways: put a "/" between them, or write one parameter instead of several, Rule("/files/{rest:path}", ...)'
    )


@dataclass(frozen=True, slots=True)
class _Wildcard:
    """A parameter of a path, and the regular expression of its convertor."""

    name: str
    kind: str

    @property
    def characters(self) -> re.Pattern[str]:
        """Matches each character that it may contain."""
        return re.compile(_CHARACTERS.get(self.kind, _CHARACTERS[_SEGMENT]))

    def stops_within(self, text: str) -> bool:
        """Whether some character of a text cannot be part of it."""
        return any(self.characters.match(each) is None for each in text)

    def is_floating_before(self, text: str) -> bool:
        """Whether it may have several ends if this text follows it."""
        return self.kind != _UUID and not self.stops_within(text[:1])


@dataclass(frozen=True, slots=True)
class _Parts:
    """A path in parts: a text, a wildcard, a text, and so on. There is one text more than there are wildcards."""

    texts: Sequence[str]
    wildcards: Sequence[_Wildcard]


def _parts(path: str, convertors: Convertors) -> _Parts:
    texts, wildcards, position = [], [], 0
    for parameter in routing.PARAM_REGEX.finditer(path):
        texts.append(path[position : parameter.start()])
        wildcards.append(_Wildcard(parameter[1], convertors[parameter[1]].regex))
        position = parameter.end()
    return _Parts([*texts, path[position:]], wildcards)


def _is_linear(parts: _Parts) -> bool:
    """Whether a backtracking matcher takes linear time: see the top of this module."""
    wildcards = list(parts.wildcards)
    if wildcards and wildcards[-1].kind == _REST and not parts.texts[-1]:
        del wildcards[-1]  # the rest of a path always matches, so nothing is tried again
    floats = False
    for number, wildcard in enumerate(wildcards):
        if floats and wildcard.kind != _UUID and not wildcard.stops_within(parts.texts[number]):
            return False
        floats = floats or wildcard.is_floating_before(parts.texts[number + 1])
    return True


class _FromTheRight:
    """A path whose wildcards are all parts of segments, matched from its end, where no choice is ever taken back.

    Starlette gives each wildcard as much as possible, from the left on; so from the right, each has as little as
    possible. Whatever one leaves over, the next one can take, because both stop at the same character.
    """

    def __init__(self, parts: _Parts, root: str) -> None:
        texts = [re.escape(text[::-1]) for text in parts.texts]
        texts[0] += rf"(?:{re.escape(root[::-1])})?\Z"
        pairs = list(zip(parts.wildcards, texts))
        atoms = "".join([rf"(?>(?P<{wildcard.name}>[^/]+?){text})" for wildcard, text in reversed(pairs)])
        end = r"\n?" if texts[-1] else ""  # "$" also matches in front of a newline at the end
        self._pattern = re.compile(end + texts[-1] + atoms)

    def match(self, path: str, /) -> Any:
        """The text of each parameter of a path by its name; ``None`` if the path does not match."""
        match = self._pattern.match(path[::-1])
        return None if match is None else {name: text[::-1] for name, text in match.groupdict().items()}
