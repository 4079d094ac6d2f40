"""The bill of a request: what all its lines come to, as takes for the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..decision import Bucket, Charge, OnError, Take
from .lines import Line
from .penalties.blocks import look

Charged: TypeAlias = tuple[Line, str | None, tuple[Charge, ...]]
"""A line, its key, if it has one, and what is charged for it."""

PATIENCE = 5.0
"""Seconds for which reading from a WebSocket may pause, at the most."""


@dataclass(slots=True, eq=False)
class Due:
    """Charges of one line that are settled when the answer is known: their places in the take of that number."""

    line: Line
    take: int
    places: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Bill:
    """What one request is charged: the take that is enforced, if any, and then those of the shadow rules."""

    takes: tuple[Take, ...]
    is_enforced: bool
    """Whether the first take is no shadow rule's."""
    has_looks: bool = False
    """Whether some of its charges only ask whether a key is blocked."""
    dues: tuple[Due, ...] = ()
    """What is to be settled after the answer."""
    messages: Take | None = None
    """What each message is charged that comes in over a WebSocket."""
    is_usual: bool = field(init=False)
    """Whether it is one take that is enforced, and nothing else."""

    def __post_init__(self) -> None:
        self.is_usual = (
            self.is_enforced and len(self.takes) == 1 and not self.has_looks and not self.dues and not self.messages
        )


def bill_of(charged: Sequence[Charged]) -> Bill | None:
    """The takes for what each line comes to: one for all that are enforced, and one for each shadow rule."""
    enforced: dict[Bucket, tuple[Line, Charge]] = {}
    looks: dict[Bucket, Charge] = {}
    for line, _, charges in charged:
        for charge in () if line.shadow else charges:
            enforced.setdefault(charge.bucket, (line, charge))
        if line.penalty and charges and not line.shadow:
            asking = look(line.name, charges[0].key, line.penalty)
            looks.setdefault(asking.bucket, asking)
    takes, lines = [], []
    if enforced:
        lines.append([line for line, _ in enforced.values()])
        on_error = max((line.on_error for line in lines[0]), key=_STRICTNESS.index)
        takes.append(Take((*(charge for _, charge in enforced.values()), *looks.values()), on_error=on_error))
    for line, _, charges in charged:
        if line.shadow and charges:
            lines.append([line] * len(charges))
            takes.append(Take(charges, on_error=line.on_error))
    messages = _messages(charged)
    if not takes and not messages:
        return None
    return Bill(tuple(takes), bool(enforced), bool(looks), tuple(_dues(lines)), messages)


def _messages(charged: Sequence[Charged]) -> Take | None:
    """What each message over a WebSocket is charged, by all lines that say so."""
    lines = [(line, key) for line, key, _ in charged if line.messages and key is not None and not line.shadow]
    charges = [Charge(quota, key, 1, f"{line.name} messages") for line, key in lines for quota in line.messages]
    if not charges:
        return None
    on_error = max((line.on_error for line, _ in lines), key=_STRICTNESS.index)
    return Take(tuple({charge.bucket: charge for charge in charges}.values()), PATIENCE, on_error=on_error)


def _dues(lines: Sequence[Sequence[Line]]) -> Iterator[Due]:
    """What there is to settle of takes whose charges are of these lines."""
    for take, each in enumerate(lines):
        for line in dict.fromkeys(each):
            if line.settle is not None:
                yield Due(line, take, tuple([place for place, other in enumerate(each) if other is line]))


_STRICTNESS: tuple[OnError | None, ...] = ("allow", None, "local", "deny")
"""What to do without the store, from the mildest on; ``None`` is what the store itself says."""
