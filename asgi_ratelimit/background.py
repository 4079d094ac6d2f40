"""Work in the background: event loops, work that outlives its caller, and work that is done again and again.

Each process has one event loop in a thread of its own. A child that is forked has it no more, and starts anew.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from threading import Lock, Thread, get_ident
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from .errors import ConfigurationError
from .logs import FailureLog

F = TypeVar("F", bound="asyncio.Future[Any]")
T = TypeVar("T")

_failures = FailureLog()

# How many seconds a caller that is cancelled, or one that closes a store, waits at most for what is given back.
LONGEST = 1.0


def running_loop(what: str, instead: str) -> asyncio.AbstractEventLoop:
    """The event loop of asyncio that runs here.

    Raises ``ConfigurationError`` if there is none; the error says ``what`` needs one, and what to do ``instead``.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        problem = f"{what} needs asyncio, and no event loop of it is running"
        raise ConfigurationError(f"{problem}; under trio, {instead}") from None


def loop_of_store() -> asyncio.AbstractEventLoop:
    """The event loop on which a store on a server is used; ``ConfigurationError`` where none runs."""
    instead = "call a SyncLimiter in a thread: await trio.to_thread.run_sync(limiter.rate_limit, key)"
    return running_loop("a store on Redis with async", instead)


class ByLoop(dict[asyncio.AbstractEventLoop, T]):
    """What each event loop of asyncio has of its own, as loops cannot share connections.

    Both methods raise ``ConfigurationError`` where no loop runs.
    """

    def of_running(self, make: Callable[[], T]) -> T:
        """That of the running event loop, which is made at its first use; what closed event loops had is dropped."""
        loop = loop_of_store()
        if loop not in self:
            for each in list(self):  # another thread may add one meanwhile
                if each.is_closed():
                    self.pop(each, None)
            self[loop] = make()
        return self[loop]

    async def aclose(self) -> None:
        """Close that of the running event loop, if there is one; the next use makes another one."""
        own: Any = self.pop(loop_of_store(), None)
        if own is not None:
            await own.aclose()


# What goes on although its caller may be gone, and the ``id`` of its owner: an event loop has only weak references to
# its tasks.
_under_way: dict[asyncio.Future[Any], int] = {}


def keep(owner: object, future: F) -> F:
    """Keep a task or future of a store, or of a part of it, until it is done; return it. Nobody need read its error."""
    _under_way[future] = id(owner)
    future.add_done_callback(_forget)
    return future


def _forget(future: asyncio.Future[Any]) -> None:
    _under_way.pop(future, None)
    if not future.cancelled():
        future.exception()


async def unharmed(future: Any) -> Any:
    """The result of a future, which goes on if the caller is cancelled: after a shield, asyncio would log its error."""
    if not future.done():
        done = future.get_loop().create_future()  # ``asyncio.wait`` makes one, too, but takes twice as long
        future.add_done_callback(lambda _: done.done() or done.set_result(None))
        await done
    return future.result()


async def see_all_through(owner: object, longest: float = LONGEST) -> None:
    """Wait until all that ``keep`` has for an owner on this event loop is done, and what follows from it.

    It returns after ``longest`` seconds in any case.
    """
    try:
        loop, identity = asyncio.get_running_loop(), id(owner)
    except RuntimeError:  # another one runs
        return
    until = loop.time() + longest
    while pending := [each for each, of in list(_under_way.items()) if of == identity and each.get_loop() is loop]:
        if loop.time() >= until:
            return
        await asyncio.wait(pending, timeout=until - loop.time())


# The event loop of this process, and what a forked child forgets


_resettable: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def reset_now_and_in_child(resettable: Any, method: str = "reset") -> None:
    """Call this method, which forgets all callers, now, and in every child process that is forked from now on.

    The tasks and threads that wait in a process do not exist in its children. The method also replaces all locks.
    """
    getattr(resettable, method)()
    _resettable[resettable] = method


class BackgroundLoop:
    """One event loop in a background thread of each process, on which synchronous callers use asynchronous stores.

    It is started at first use. Its thread is a daemon, so it never keeps a process from ending.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the loop: a forked child inherits it, but not the thread that runs it."""
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = Thread(target=loop.run_forever, name="asgi_ratelimit", daemon=True)
                thread.start()  # which may fail, and be tried again
                self._loop, self._thread = loop, thread.ident
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, block this thread until it ends, and return its result.

        Raises ``ConfigurationError`` on the loop itself, whose thread must not block, and once the program ends.
        """
        if sys.is_finalizing() or get_ident() == self._thread:  # under gevent, one loop seems to run in all greenlets
            coroutine.close()
            problem = "a call without async, on the event loop that makes such calls or at exit, would wait for ever"
            raise ConfigurationError(f"{problem}: make it with async, or in a thread, await asyncio.to_thread(call)")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


background_loop = BackgroundLoop()


def run_in_place(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is not generic
    coroutine.close()
    raise RuntimeError("the store declares in_process=True, but one of its methods waited")


def _reset_in_child() -> None:
    background_loop.reset()  # first, because the objects that are reset may use it at once
    for resettable, method in list(_resettable.items()):
        getattr(resettable, method)()


os.register_at_fork(after_in_child=_reset_in_child)


# Work that is done again and again

# Seconds between two runs, so that a change is known everywhere within a second.
EVERY = 0.9


class Repeating:
    """The background loop of this process awaits ``run`` again and again, from ``start`` to ``end``.

    It is done there whichever event loop or thread needs it, so that it outlives any of them. It is done by timers and
    short tasks: asyncio would warn of a task that still sleeps when a process ends. It ends when ``owner`` returns
    ``None``.
    """

    # Whether it was started, and has not ended; and whether a store does both.
    is_running = _is_attached = False

    def __init__(self, owner: Callable[[], Any]) -> None:
        self._owner = owner
        reset_now_and_in_child(self)

    async def run(self) -> float:
        """Do the work once; return the seconds until the next time, or infinity to end."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close what the work has opened there; nothing, if a subclass says nothing else."""

    def start(self) -> None:
        """Begin, unless the work is done already. Thread-safe."""
        if not self.is_running:
            loop, self.is_running = background_loop.loop(), True  # in this order, as no thread may start
            loop.call_soon_threadsafe(self._begin, context=Context())

    async def end(self) -> None:
        """Return when the work was done once more, and has closed what it opened; it can be started again."""
        if self.is_running:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), background_loop.loop()))

    def reset(self) -> None:
        """Start afresh in a forked child, which has this object, but not the thread that does the work."""
        goes_on, self.is_running = self.is_running and not self._is_attached, False
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        if goes_on:
            self.start()

    def _begin(self) -> None:
        keep(None, asyncio.get_running_loop().create_task(self._run()))

    async def _run(self) -> None:
        async with self._turn:
            if not self.is_running:
                return
            seconds = math.inf if self._owner() is None else await self._once()
            if seconds == math.inf:
                self.is_running = False
                await self.close()
                return
            if self._timer is not None:  # it was set before the work ended, and was started again
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def _end(self) -> None:
        self.is_running = False
        async with self._turn:  # what is under way comes to its end
            await self._once()
            if not self.is_running:  # nobody has started it again
                await self.close()

    async def _once(self) -> float:
        try:
            return await self.run()
        except Exception as error:  # noqa: BLE001  # nobody else would notice that it has ended
            _failures.report("what is done in the background failed", error)
            return EVERY


class BesideStore(Repeating):
    """Work on a store, often on its documents, while an event loop uses it. The store is not kept alive.

    Attributes that the work needs have to be there before: it may begin at once.
    """

    def __init__(self, store: Any) -> None:
        self.documents: Any = store.documents
        self.in_process = store.in_process
        super().__init__(ref(store))
        self._is_attached = hasattr(store, "attach")
        if self._is_attached:
            store.attach(self)
        elif not self.in_process:
            self.start()

    async def close(self) -> None:
        """Close the connection of the documents."""
        await self.documents.aclose()
