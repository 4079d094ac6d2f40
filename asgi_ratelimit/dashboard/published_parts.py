"""The parts of documents that processes publish, read back.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..counts import FORMAT, Recording, WaitTimes, recording_in


@dataclass(frozen=True, slots=True)
class Part:
    """What one process has counted in one minute; see ``Minute`` for its values."""

    content: bytes
    values: dict[str, Any]

    @property
    def waits(self) -> WaitTimes:
        """How long requests waited for the store."""
        total_ns, parts = self.values["waits"]
        return WaitTimes(parts, total_ns)

    def recording(self, name: str) -> Recording | None:
        """The recording of a rule, if there is one."""
        return recording_in(self.content[self.content.index(b"\n") + 1 :], name)


def part_of(content: bytes, minute: int) -> Part | None:
    """The part in these bytes, if it belongs to that minute and this version can read it."""
    try:
        values = json.loads(content[: content.index(b"\n")])
        return Part(content, values) if values["format"] == FORMAT and values["minute"] == minute else None
    except (ValueError, KeyError, TypeError):
        return None
