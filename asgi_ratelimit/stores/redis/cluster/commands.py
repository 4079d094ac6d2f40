"""Commands with one key each, outside the script, on a cluster: sent to any node, and then to the node it names."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import AskError, MovedError, RedisError

from ....errors import StoreError, StoreTimeout, StoreUnavailable
from ..connection.script_calls import ScriptCaller
from ..connection.server_addresses import Address, ClusterAddresses
from ..connection.store_errors import store_error_of

MAX_REDIRECTIONS = 5


class ClusterCommands:
    """Connections to the nodes of a cluster, for one event loop. A command takes at most ``timeout`` seconds.

    Use only a few keys: the node of each key is remembered.
    """

    def __init__(self, addresses: ClusterAddresses, timeout: float) -> None:
        self._addresses = addresses
        self._timeout = timeout
        self._callers: dict[Address, ScriptCaller] = {}
        self._latest: Address | None = None

    async def command(self, *command: str | bytes | int) -> Any:
        """The answer to one command. Raises ``StoreError``."""
        failure: StoreError = StoreTimeout(f"the cluster did not answer within {self._timeout} s")
        latest = () if self._latest is None else (self._latest,)
        try:
            async with asyncio.timeout(self._timeout):
                for address in dict.fromkeys((*latest, *self._addresses.seeds)):
                    try:
                        return await self._follow(address, command)
                    except (StoreTimeout, StoreUnavailable) as error:
                        failure, self._latest = error, None
        except TimeoutError:
            pass
        raise failure

    async def aclose(self) -> None:
        """Close all connections; the next command opens others."""
        callers, self._callers = self._callers, {}
        for caller in callers.values():
            await caller.aclose()

    async def _follow(self, address: Address, command: tuple[str | bytes | int, ...]) -> Any:
        asking = False
        for _ in range(MAX_REDIRECTIONS):
            answer = await self._caller(address).answer(command, asking=asking)
            if not isinstance(answer, AskError):
                break
            asking = not isinstance(answer, MovedError)
            address = self._addresses.remap((answer.host or address[0], int(answer.port)))
        if isinstance(answer, RedisError):
            raise store_error_of(answer, self._timeout) from answer
        self._latest = address
        return answer

    def _caller(self, address: Address) -> ScriptCaller:
        caller = self._callers.get(address)
        if caller is None:
            caller = self._callers[address] = ScriptCaller(self._addresses.pool(address), self._timeout / 2)
        return caller
