"""What a forked child has to forget, because the tasks and threads that wait in its parent do not exist in it."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from . import background_loop


class Resettable(Protocol):
    """An object that can return to its initial state."""

    def reset(self) -> None:
        """Forget all callers, and replace all locks."""
        ...


_registered: WeakSet[Resettable] = WeakSet()


def reset_in_child(resettable: Resettable) -> None:
    """Call ``resettable.reset()`` in every child process that is forked from now on."""
    _registered.add(resettable)


def _reset() -> None:
    background_loop.replace()  # first, because the objects that are reset may use it at once
    for resettable in list(_registered):
        resettable.reset()


os.register_at_fork(after_in_child=_reset)
