"""The model of one transport, for all its threads and event loops."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from threading import RLock
from types import TracebackType

from ....profiles import Profile
from ....waiting import background_loop
from ....waiting.forks import reset_in_child
from ..model import Model, OnChange
from ..queued_requests import Call


class LockedModel:
    """A model that one thread at a time uses: ``with locked as model``. After a fork, the child starts afresh.

    It knows the event loop of each request, and tells the model of those that are lost because their loop was closed.
    """

    def __init__(self, profile: Profile, on_change: OnChange, now_us: Callable[[], float]) -> None:
        self._profile = profile
        self._on_change = on_change
        self._now_us = now_us
        self.reset()
        reset_in_child(self)

    def reset(self) -> None:
        """Forget everything that was learned, and all requests."""
        self._lock = RLock()  # the garbage collector may call the model in here, by closing a forgotten request
        self._model = Model(self._profile, self._on_change)
        self._calls: dict[AbstractEventLoop | None, dict[Call, None]] = {}

    def begin(self, call: Call) -> None:
        """Note that a request waits from now on, or is under way."""
        with self._lock:
            if self._calls and call.loop not in self._calls:
                self.drop_dead()
            self._calls.setdefault(call.loop, {})[call] = None
            is_mixed = len(self._calls) > 1
        if is_mixed:
            background_loop.watch(self)

    def end(self, call: Call) -> None:
        """Note that a request has its answer, or has failed."""
        with self._lock:
            calls = self._calls.get(call.loop)
            if calls is not None:
                calls.pop(call, None)
                if not calls:
                    del self._calls[call.loop]

    def drop_dead(self) -> bool:
        """Tell the model of requests whose event loops are closed; return whether others are of several loops.

        Those that wait come first, so that none of them is admitted.
        """
        with self._lock:
            for loop in [each for each in list(self._calls) if each is not None and each.is_closed()]:
                for call in sorted(self._calls.pop(loop, ()), key=lambda each: each.is_admitted):
                    self._model.lost(call, self._now_us())
            return len(self._calls) > 1

    def __enter__(self) -> Model:
        self._lock.acquire()
        return self._model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
