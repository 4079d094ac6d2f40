"""The model of one transport, for all its threads and event loops."""

from __future__ import annotations

from threading import RLock
from types import TracebackType

from ....profiles import Profile
from ....waiting.background_loop import reset_in_child
from ..model import Model, OnChange


class LockedModel:
    """A model that one thread at a time uses: ``with locked as model``. After a fork, the child starts afresh."""

    def __init__(self, profile: Profile, on_change: OnChange) -> None:
        self._profile = profile
        self._on_change = on_change
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget everything that was learned, and all requests."""
        self._lock = RLock()  # the garbage collector may call the model in here, by closing a forgotten request
        self._model = Model(self._profile, self._on_change)

    def __enter__(self) -> Model:
        self._lock.acquire()
        return self._model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
