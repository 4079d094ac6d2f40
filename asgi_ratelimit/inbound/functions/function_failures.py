"""Functions of the program that fail: logged at most once a minute with a count, and counted by hooks."""

from __future__ import annotations

from ...counts import Counts
from ...hooks import Failure
from ...hooks.calling import Hooks
from ...logs import FailureLog

_NO_HOOKS = Hooks(())


class Failures:
    """The failures of all functions of one middleware, or of dependencies without one."""

    def __init__(self, hooks: Hooks = _NO_HOOKS, counts: Counts | None = None) -> None:
        self._hooks = hooks
        self._counts = counts
        self._log = FailureLog()

    def report(self, name: str, failed: str, outcome: str, error: Exception) -> None:
        """Report that the function ``failed``, an argument such as ``"key"``, of the limit ``name`` has failed."""
        self._log.report(f"the {failed} function of {name!r} failed, {outcome}", error)
        if self._counts is not None:
            self._counts[name].failed += 1
        self._hooks.failed(Failure(name, failed, error))
