"""Charging by outcome: each request is settled to its actual cost, which its answer determines."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from anyio import CancelScope
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decision import Decision, checked_actual
from ..errors import StoreError
from ..keys.base import called
from ..stores import Store, settle
from .plan import SettleRule
from .request_limits import FINAL, STARTS
from .rules import CompiledRule

_BODIES = frozenset({"http.response.body", "websocket.http.response.body"})
_FILES = frozenset({"http.response.pathsend", "http.response.zerocopysend"})
_SWITCHING = 101
_REJECTED = 403
"""The status with which servers answer a handshake that is closed before it was accepted."""
_BODILESS = frozenset({204, 304})
_NOTHING_WAITS = nullcontext()
"""What never waits cannot be cancelled."""
_LENGTH = re.compile("[0-9]{1,18}")

logger = logging.getLogger("asgi_ratelimit")


class Settling:
    """An app around another one, which settles a request's decisions by its answer: once, as early as possible.

    The request was charged before, so that a burst of guesses cannot pass between check and charge. A request without
    an answer stays charged.
    """

    def __init__(
        self, app: ASGIApp, store: Store, settle_rules: Sequence[SettleRule], decisions: Sequence[Decision]
    ) -> None:
        self._app = app
        self._store = store
        self._settle_rules = settle_rules
        self._decisions = decisions
        self._needs_bytes = any(each.rule.settles_by_bytes for each in settle_rules)
        self._status: int | None = None
        self._raw_headers: Iterable[tuple[bytes, bytes]] = ()
        self._sent = 0
        self._is_head = False
        self._is_settled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._is_head = scope.get("method") == "HEAD"

        async def settling_send(message: Message) -> None:
            if not self._is_settled and self._note(message):
                await self._settle()
            await send(message)

        try:
            await self._app(scope, receive, settling_send)
        except Exception as error:
            if self._status is None:
                self._status = error.status_code if isinstance(error, HTTPException) else 500
            raise
        finally:
            if self._status is not None and not self._is_settled:
                await self._settle()

    def _note(self, message: Message) -> bool:
        """Note what settle functions take; return whether this message completes it."""
        kind = message["type"]
        if kind in STARTS:
            if message.get("status", FINAL) < FINAL:
                return False
            self._status = message.get("status", _SWITCHING)
            self._raw_headers = message.get("headers", ())
            return not self._needs_bytes
        if kind == "websocket.close" and self._status is None:
            self._status = _REJECTED
            return True
        if kind in _BODIES or kind in _FILES:
            if self._needs_bytes and not self._is_head and self._status not in _BODILESS:
                self._sent += _size(message, self._headers)
            return not message.get("more_body", False)
        return False

    @property
    def _headers(self) -> Headers:
        return Headers(raw=list(self._raw_headers))

    async def _settle(self) -> None:
        """Settle every decision, even if the request has been cancelled."""
        self._is_settled = True
        is_at_once = self._store.in_process and not any(each.rule.settles_async for each in self._settle_rules)
        with _NOTHING_WAITS if is_at_once else CancelScope(shield=True):
            await self._settle_decisions()

    async def _settle_decisions(self) -> None:
        costs: dict[int, list[float | None]] = {}
        for each in self._settle_rules:
            actual = await self._actual_cost(each.rule)
            if actual is not None:
                nothing: list[float | None] = [None] * len(self._decisions[each.take_number].charges)
                own = costs.setdefault(each.take_number, nothing)
                for place in each.places:
                    own[place] = actual
        for number, own in costs.items():
            with suppress(StoreError):  # which the store has logged; the charge stands
                await settle(self._store, self._decisions[number], own)

    async def _actual_cost(self, rule: CompiledRule) -> float | None:
        """The result of the rule's settle function; ``None``, also if it fails, leaves the cost as charged."""
        settle: Any = rule.settle
        try:
            sent = (self._sent,) if rule.settles_by_bytes else ()
            cost = await called(settle, self._status, self._headers, *sent)
            return None if cost is None else checked_actual(cost)
        except Exception as error:  # noqa: BLE001  # a function of the user's, which may raise whatever it likes
            rule.fail_to_settle(error)
            return None


def _size(message: Message, headers: Headers) -> int:
    """The bytes of the body that a message sends; 0 for a file whose size cannot be found out."""
    if message["type"] == "http.response.pathsend":
        length = headers.get("content-length", "")
        return int(length) if _LENGTH.fullmatch(length) else _size_at(message["path"])
    if message["type"] == "http.response.zerocopysend":
        left, count = _left_in(message["file"], message.get("offset")), message.get("count")
        return (left or 0) if count is None else count if left is None else min(count, left)
    return len(message.get("body", b""))


def _size_at(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # the server cannot send it either
        return 0


def _left_in(file: Any, offset: int | None) -> int | None:
    """The bytes of an open file from ``offset`` on, or from its current position; ``None`` if they are unknown."""
    try:
        number = file if isinstance(file, int) else file.fileno()
        start = os.lseek(number, 0, os.SEEK_CUR) if offset is None else offset
        return max(os.fstat(number).st_size - start, 0)
    except OSError:
        return None
