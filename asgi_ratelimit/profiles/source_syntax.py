"""How a profile writes the sources of an answer, and the checks of them.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from ..errors import ConfigurationError

Source: TypeAlias = str | float
"""Where a value is: ``"x-limit"`` is a header, ``"x-limit#used"`` a parameter in a header, ``"body:cost.left"`` a field
of the body (``*`` for any item of a list); a number is the value itself. ``{name}`` stands for the name of a limit."""

Sources: TypeAlias = Source | tuple[Source, ...]
"""One source, or several, of which the first that has a value counts; ``()`` for none."""

Sign: TypeAlias = tuple[str, str]
"""A source and its text, in any case; ``*`` at an end of the text stands for any other text. ``("retry-after", "*")``
is a header that is present, and ``("via", "")`` one that is missing."""

Unit: TypeAlias = Literal["auto", "s", "ms", "epoch", "epoch-ms"]
"""The unit of a time: seconds or milliseconds from now, or since 1970. ``"auto"`` distinguishes them by size, and reads
durations (``6m0s``) and dates as well; milliseconds from now are never recognised by size."""

ResetMeaning: TypeAlias = Literal["window end", "next unit", "full refill"]
"""What happens at a reset: a new window begins, more units become available, or the limit is as good as unused."""


def each_source(sources: Sources) -> tuple[Source, ...]:
    """The sources one by one."""
    return sources if isinstance(sources, tuple) else (sources,)


def require_one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse any value but these."""
    if value not in allowed:
        raise ConfigurationError(f'{field} must be one of {", ".join(allowed)}, not {value!r}: {field}="{allowed[0]}"')


def require_sources(sources: Iterable[object]) -> None:
    """Refuse anything but sources."""
    for source in sources:
        if isinstance(source, bool) or not isinstance(source, str | float | int):
            raise ConfigurationError(f'a source is a text or a number, not {source!r}: "x-ratelimit-remaining"')
        if isinstance(source, str) and not _is_valid(source):
            raise ConfigurationError(
                f"a source is the name of a header in lower case, or a path in the body, with {{name}} once at most, "
                f'not {source!r}: "x-ratelimit-remaining" or "body:error.code"'
            )


def _is_valid(source: str) -> bool:
    if source.startswith("body:"):
        return source != "body:"
    return bool(source) and source == source.lower() and source.count("{name}") <= 1 and " " not in source
