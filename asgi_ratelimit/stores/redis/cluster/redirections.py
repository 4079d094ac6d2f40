"""Redirections: a slot that has moved to another node (MOVED), or is being moved there (ASK), is followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import AskError, MovedError

from ....errors import StoreError
from ..connection.script_calls import ScriptCall, ScriptCaller
from ..connection.server_addresses import Address


class Redirections:
    """The other nodes that one node has redirected calls to.

    ``redirected`` receives each redirection, and returns the address that it leads to; ``timeout`` is in seconds.
    """

    def __init__(
        self,
        pool: Callable[[Address], ConnectionPool],
        timeout: float,
        redirected: Callable[[AskError], Address],
    ) -> None:
        self._pool = pool
        self._timeout = timeout
        self._redirected = redirected
        self._callers: dict[Address, ScriptCaller] = {}

    async def follow(self, redirection: AskError, call: ScriptCall, submitted: float) -> Any:
        """The reply of the node that a redirection leads to, permanently (MOVED) or during a migration (ASK)."""
        address = self._redirected(redirection)
        if address not in self._callers:
            self._callers[address] = ScriptCaller(self._pool(address), self._timeout)
        asking = not isinstance(redirection, MovedError)
        try:
            (reply,) = await self._callers[address].evaluate([call], submitted, asking=asking)
        except StoreError as error:
            return error
        return reply

    @property
    def has_connections(self) -> bool:
        """Whether there are connections to other nodes."""
        return bool(self._callers)

    async def aclose(self) -> None:
        """Close the connections to these nodes; the next redirection opens another one."""
        callers, self._callers = self._callers, {}
        for caller in callers.values():
            await caller.aclose()
