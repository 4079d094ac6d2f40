"""Calls of the script over one connection, each with a deadline."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from importlib.resources import files
from itertools import count
from random import getrandbits
from typing import Any, TypeAlias, cast

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import InvalidResponse, NoScriptError, RedisError

from ....errors import StoreError
from .connection import OpenConnection, Outcome, open_connection
from .store_errors import EventLoopEnded, ShardingProxyError, store_error_of

SCRIPT = files("asgi_ratelimit.stores.redis").joinpath("rate_limit.lua").read_text("utf-8")
SCRIPT_SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

Command: TypeAlias = Sequence[str | bytes | int]

ScriptCall: TypeAlias = Sequence[bytes | int]
"""The arguments of EVALSHA after the hash: the number of keys, the keys, and the script's own arguments."""

Done: TypeAlias = Callable[["Any | RedisError | StoreError"], None]
"""Receives the script's reply, the error that Redis answered, or a ``StoreError`` if there is no answer."""


class ScriptCaller:
    """One connection to one Redis, for one event loop and one call at a time; a call takes at most ``timeout`` seconds.

    Each call carries a mark with which its reply begins, so no reply is mistaken for that of another call.
    """

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._owned: AbstractConnection | None = None
        self._connection: OpenConnection | None = None
        self._call_numbers = count(getrandbits(48))
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_checked = False
        self._is_by_tls = issubclass(pool.connection_class, SSLConnection)
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def call(self, call: ScriptCall, submitted: float, done: Done) -> None:
        """Call the script without a task if the connection is open, or else as ``evaluate`` does.

        ``submitted`` is the time of the event loop at which the deadline began to run.
        """
        connection = self._connection
        if connection is None or not connection.is_clean:
            self.start(self._evaluate_one(call, submitted, done))
            return
        mark = b"%d " % next(self._call_numbers)
        packed = pack_command(("EVALSHA", SCRIPT_SHA, *call, mark))  # type: ignore[arg-type]  # its stub is wrong
        self._deadline = submitted + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        connection.send(packed, 1, partial(self._answered, call, submitted, done, mark))

    def _answered(self, call: ScriptCall, submitted: float, done: Done, mark: bytes, outcome: Outcome) -> None:
        self._deadline = math.inf
        answer = outcome[0] if type(outcome) is list else outcome
        if _is_marked(answer, mark):
            done(answer)
        elif isinstance(answer, NoScriptError):
            self.start(self._evaluate_one(call, submitted, done))
        elif isinstance(answer, RedisError) and type(outcome) is list:
            done(answer)
        else:
            self.drop()
            done(store_error_of(outcome if isinstance(outcome, Exception) else _FOREIGN_REPLY, self._timeout))

    def _check_deadline(self) -> None:
        """Abort the call in flight if its deadline has passed. One timer serves call after call."""
        self._timer = None
        if self._connection is None or self._deadline == math.inf:  # idle: the next call sets the timer again
            return
        if self._deadline <= self._loop.time():
            self._connection.abort(TimeoutError())
        else:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    async def evaluate(self, calls: Sequence[ScriptCall], submitted: float, *, asking: bool = False) -> list[Any]:
        """The script's reply to each call, or the error that Redis answered, all within one deadline.

        With ``asking``, a node of a cluster answers for a slot that is being moved to it. Raises ``StoreError`` if
        there is no answer.
        """
        return await self._within_deadline(submitted, self._evaluate(calls, asking))

    async def command(self, *command: str | bytes | int) -> Any:
        """The answer to any one command. Raises ``StoreError``."""
        answer = await self.answer(command)
        if isinstance(answer, RedisError):
            raise store_error_of(answer, self._timeout) from answer
        return answer

    async def answer(self, command: Command, *, asking: bool = False) -> Any:
        """The answer to any one command, or the error that Redis answered; ``asking`` is as in ``evaluate``.

        Raises ``StoreError`` if there is no answer.
        """
        (answer,) = await self._within_deadline(self._loop.time(), self._send([command], asking))
        return answer

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in a task of its own."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self) -> None:
        """Close the connection in the background; the next call opens another one, even if it comes at once."""
        if self._owned is not None:
            self.start(self._release(self._owned))
        self._forget()

    async def aclose(self) -> None:
        """Close the connection; the next call opens another one."""
        connection = self._owned
        self._forget()
        if connection is not None:
            await self._release(connection)

    def _forget(self) -> None:
        self._owned = self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _release(self, connection: AbstractConnection) -> None:
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    async def _evaluate_one(self, call: ScriptCall, submitted: float, done: Done) -> None:
        reply: Any = EventLoopEnded()
        try:
            (reply,) = await self.evaluate([call], submitted)
        except StoreError as error:
            reply = error
        finally:
            done(reply)

    async def _within_deadline(self, submitted: float, work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
        try:
            async with asyncio.timeout_at(submitted + self._timeout):
                return await work
        except Exception as error:  # redis-py raises a ValueError for a redirection that it cannot read
            is_first_by_tls = self._connection is None and not self._is_checked and self._is_by_tls
            await self.aclose()  # late answers may follow, or the server may no longer be the primary
            raise store_error_of(error, self._timeout, is_first_by_tls=is_first_by_tls) from error

    async def _evaluate(self, calls: Sequence[ScriptCall], asking: bool) -> list[Any]:
        """Call the script by its hash. Redis forgets scripts when it restarts; then the text is sent, once."""
        if not self._is_checked:
            await self._require_one_server()
        marks = [b"%d " % next(self._call_numbers) for _ in calls]
        commands = [("EVALSHA", SCRIPT_SHA, *call, mark) for call, mark in zip(calls, marks)]
        answers = await self._send(commands, asking)
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            again = [commands[at] for at in unknown]
            again[0] = ("EVAL", SCRIPT, *again[0][2:])
            for at, answer in zip(unknown, await self._send(again, asking), strict=True):
                answers[at] = answer
        return list(map(_reply_in, answers, marks))

    async def _require_one_server(self) -> None:
        """Raise ``ShardingProxyError`` if a call without keys cannot be sent anywhere; checked once."""
        (answer,) = await self._send([("EVALSHA", "0" * 40, 0)], False)
        if _NO_KEY_TO_SHARD_BY.search(str(answer)):
            raise ShardingProxyError(answer)
        self._is_checked = isinstance(answer, NoScriptError)

    async def _send(self, commands: Sequence[Command], asking: bool) -> list[Any]:
        """Send all commands in one packet, and wait for the answer to each; an error is an answer too."""
        packed = [_packed("ASKING") + _packed(*command) if asking else _packed(*command) for command in commands]
        answers: asyncio.Future[list[Any]] = self._loop.create_future()

        def done(outcome: Outcome) -> None:
            if answers.done():
                return
            if isinstance(outcome, Exception):
                answers.set_exception(outcome)
            else:
                answers.set_result(outcome)

        (await self._connected()).send(b"".join(packed), len(packed) * (1 + asking), done)
        return (await answers)[asking :: 1 + asking]

    async def _connected(self) -> OpenConnection:
        if self._connection is not None and not self._connection.is_clean:
            await self.aclose()  # the server has closed it, or bytes have arrived that no call accounts for
        if self._connection is None:
            self._owned, self._connection = await open_connection(self._pool)
        return self._connection


_NO_KEY_TO_SHARD_BY = re.compile("wrong number of arguments|invalid request|unsupported command")
"""The answer of a proxy to a call without keys; a Redis answers NOSCRIPT, or that the user may not call it."""

_FOREIGN_REPLY = InvalidResponse("the reply does not belong to the call")


def _is_marked(answer: Any, mark: bytes) -> bool:
    """Whether this is the script's reply to the call with this mark."""
    return type(answer) is list and bool(answer) and type(answer[0]) is bytes and answer[0].startswith(mark)


def _reply_in(answer: Any, mark: bytes) -> Any:
    """The script's reply to the call with this mark. Raises ``InvalidResponse`` for the reply to another call."""
    if isinstance(answer, RedisError) or _is_marked(answer, mark):
        return answer
    raise _FOREIGN_REPLY


def _packed(*command: str | bytes | int) -> bytes:
    return cast("bytes", pack_command(command))  # type: ignore[arg-type]  # its stub expects a tuple of one
