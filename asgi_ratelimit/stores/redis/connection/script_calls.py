"""The way to one Redis: a connection, the script, and the boundary where foreign errors become ours."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Coroutine, Sequence
from importlib.resources import files
from itertools import count
from random import getrandbits
from typing import Any, TypeAlias, cast

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, InvalidResponse, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ....errors import StoreError, StoreTimeout, StoreUnavailable
from .connection import Outcome, Pipe

SCRIPT = files("asgi_ratelimit.stores.redis").joinpath("rate_limit.lua").read_text("utf-8")
SCRIPT_SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

Command: TypeAlias = Sequence[str | bytes | int]
Call: TypeAlias = Sequence[bytes | int]
"""What the script is called with: how many keys, the keys, the arguments."""

_OUT_OF_SERVICE = re.compile(r"(?:^|-)(?:BUSY|LOADING|MASTERDOWN|CLUSTERDOWN)\b")
"""How an error starts, or the one inside of a script's, that says that Redis is there but cannot serve."""

_NOT_WRITABLE = re.compile(r"(?:^|-)(?:MISCONF|NOREPLICAS|OOM|READONLY)\b")


class NotWritable(StoreUnavailable):
    """Raised where Redis can read, but not write: it can still refuse."""


Done: TypeAlias = Callable[["Any | StoreError"], None]
"""Is told the script's reply to a call, the error that Redis answered, or ours where there is no answer at all."""


class Link:
    """One connection to one Redis, for one event loop and one call at a time; each may take ``timeout`` seconds."""

    def __init__(self, pool: ConnectionPool, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._connection: AbstractConnection | None = None
        self._pipe: Pipe | None = None
        self._marks = count(getrandbits(48))
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadline = math.inf
        self._alarm: asyncio.TimerHandle | None = None

    def call(self, call: Call, submitted: float, done: Done) -> None:
        """Call the script at once, without a task, as long as all goes well; see ``evaluate``."""
        pipe = self._pipe
        if pipe is None or not pipe.is_clean:
            self.start(self._tell(call, submitted, done))
            return
        mark = b"%d" % next(self._marks)

        def tell(outcome: Outcome) -> None:
            self._deadline = math.inf
            answer = outcome[0] if type(outcome) is list else None
            if type(answer) is list and answer and answer[0] == mark:
                done(answer[1:])
            elif isinstance(answer, NoScriptError):
                self.start(self._tell(call, submitted, done))
            elif isinstance(answer, ResponseError):
                done(answer)
            else:
                self.drop()
                done(as_ours(outcome if isinstance(outcome, Exception) else _NO_ANSWER, self._timeout))

        pipe.exchange(_packed("EVALSHA", SCRIPT_SHA, *call, mark), 1, tell)
        self._expect(submitted + self._timeout)

    def _expect(self, deadline: float) -> None:
        """Give up the call under way if that is not back by then. One timer does for all calls that follow another."""
        self._deadline = deadline
        if self._alarm is None:
            self._alarm = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        self._alarm = None
        if self._pipe is None or self._deadline == math.inf:  # nothing is under way, and the next call sets it again
            return
        if self._deadline <= self._loop.time():
            self._pipe.give_up(TimeoutError())
        else:
            self._expect(self._deadline)

    async def evaluate(self, calls: Sequence[Call], submitted: float, *, asking: bool = False) -> list[Any]:
        """The script's reply to each call, or the error that Redis answered, all by the same deadline.

        ``submitted`` is when the time began to run, by the event loop's clock. With ``asking``, a node of a cluster
        answers for a slot that is being moved to it. Raises ``StoreError`` where there is no answer at all.
        """
        return await self._within(submitted, self._evaluate(calls, asking))

    async def ask(self, *command: str | bytes | int) -> Any:
        """The answer to any one command. Raises ``StoreError``."""
        (answer,) = await self._within(self._loop.time(), self._exchange([command], False))
        if isinstance(answer, ResponseError):
            raise as_ours(answer, self._timeout) from answer
        return answer

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in a task of its own, which nobody waits for."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drop(self) -> None:
        """Close the connection, with nobody waiting until it is; the next call opens another, be it made at once."""
        if self._connection is not None:
            self.start(self._close(self._connection))
        self._forget()

    async def aclose(self) -> None:
        """Close the connection; the next call opens another."""
        connection = self._connection
        self._forget()
        if connection is not None:
            await self._close(connection)

    def _forget(self) -> None:
        self._connection = self._pipe = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _close(self, connection: AbstractConnection) -> None:
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    async def _tell(self, call: Call, submitted: float, done: Done) -> None:
        """``done``, with what comes of ``evaluate``."""
        answer: Any = StoreUnavailable("the event loop has ended")
        try:
            (answer,) = await self.evaluate([call], submitted)
        except StoreError as error:
            answer = error
        finally:
            done(answer)

    async def _within(self, submitted: float, work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
        try:
            async with asyncio.timeout_at(submitted + self._timeout):
                return await work
        except (TimeoutError, RedisError, OSError) as error:
            await self.aclose()  # in doubt about what comes over it next, or whether it leads to the primary
            raise as_ours(error, self._timeout) from error

    async def _evaluate(self, calls: Sequence[Call], asking: bool) -> list[Any]:
        """By its hash, as a rule; Redis forgets scripts at a restart, and then is sent the whole once."""
        marks = [b"%d" % next(self._marks) for _ in calls]
        commands = [("EVALSHA", SCRIPT_SHA, *call, mark) for call, mark in zip(calls, marks)]
        answers = await self._exchange(commands, asking)
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            again = [commands[at] for at in unknown]
            again[0] = ("EVAL", SCRIPT, *again[0][2:])
            for at, answer in zip(unknown, await self._exchange(again, asking), strict=True):
                answers[at] = answer
        return list(map(_unmarked, answers, marks))

    async def _exchange(self, commands: Sequence[Command], asking: bool) -> list[Any]:
        """Send all commands at once, then read the answer to each; one that is an error hurts no other."""
        packed = [_packed("ASKING") + _packed(*command) if asking else _packed(*command) for command in commands]
        answers: asyncio.Future[list[Any]] = self._loop.create_future()

        def tell(outcome: Outcome) -> None:
            if answers.done():
                return
            if isinstance(outcome, Exception):
                answers.set_exception(outcome)
            else:
                answers.set_result(outcome)

        (await self._connected()).exchange(b"".join(packed), len(packed) * (1 + asking), tell)
        return (await answers)[asking :: 1 + asking]

    async def _connected(self) -> Pipe:
        if self._pipe is not None and not self._pipe.is_clean:
            await self.aclose()  # the server has closed it, or said something that nobody asked for
        if self._pipe is None:
            self._connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
            self._pipe = Pipe(self._connection)
        return self._pipe


_NO_ANSWER = InvalidResponse("that was no answer to what it was asked")


def _unmarked(answer: Any, mark: bytes) -> Any:
    """The answer to the call with that mark. Raises ``InvalidResponse`` for one to another call."""
    if isinstance(answer, ResponseError):
        return answer
    if isinstance(answer, list) and answer and answer[0] == mark:
        return answer[1:]
    raise _NO_ANSWER


def _packed(*command: str | bytes | int) -> bytes:
    return cast("bytes", pack_command(command))  # type: ignore[arg-type]  # its stub asks for a tuple of one


def as_ours(error: Exception, timeout: float) -> StoreError:
    """The error of ours that an error of the client means, where an answer was due within ``timeout`` seconds."""
    if isinstance(error, (TimeoutError, RedisTimeoutError)):
        return StoreTimeout(f"Redis did not answer within {timeout} s")
    if isinstance(error, AuthenticationError):
        return StoreError(f"Redis does not let us in: {error}")
    if isinstance(error, (RedisConnectionError, OSError)):
        return StoreUnavailable(f"Redis cannot be reached: {error}")
    if isinstance(error, ResponseError) and _NOT_WRITABLE.search(str(error)):
        return NotWritable(f"Redis cannot serve: {error}")
    if isinstance(error, ResponseError) and _OUT_OF_SERVICE.search(str(error)):
        return StoreUnavailable(f"Redis cannot serve: {error}")
    return StoreError(f"Redis answered with an error: {error}")
