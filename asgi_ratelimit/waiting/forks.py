"""What has to be forgotten in a forked child, which has none of the tasks and threads that waited in its parent."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Resettable(Protocol):
    """Whatever can be put back to how it was when it was made."""

    def reset(self) -> None:
        """Forget everybody, and have locks that nobody holds."""
        ...


_things: WeakSet[Resettable] = WeakSet()


def reset_in_child(thing: Resettable) -> None:
    """Have ``thing`` reset in every child that is forked from now on."""
    _things.add(thing)


def _reset() -> None:
    for thing in list(_things):
        thing.reset()


os.register_at_fork(after_in_child=_reset)
