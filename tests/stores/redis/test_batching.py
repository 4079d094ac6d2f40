"""Group commit: which items share a batch, what fails alone, and that nobody waits past the deadline."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from asgi_ratelimit.stores.redis.batching import MAX_ITEMS, GroupCommit
from asgi_ratelimit.testing import SteppedClock

pytestmark = pytest.mark.anyio


class TooLate(Exception):
    """The deadline of a batch is over."""


class Group(GroupCommit[int, str]):
    """A group commit, given what a subclass says."""

    def __init__(
        self,
        send: Callable[[list[int]], Awaitable[Sequence[str | Exception]]],
        timeout: float = 30.0,
        weight_of: Callable[[int], int] = lambda item: 1,
        most_weight: int = MAX_ITEMS,
    ) -> None:
        super().__init__(timeout, most_weight)
        self._sends, self._weigh = send, weight_of

    async def send(self, items: list[int]) -> Sequence[str | Exception]:
        return await self._sends(items)

    def timed_out(self) -> Exception:
        return TooLate()

    def weight_of(self, item: int) -> int:
        return self._weigh(item)


@dataclass
class Server:
    """The other end of a ``GroupCommit``, which answers when the test says so."""

    options: dict[str, Any] = field(default_factory=dict)
    batches: list[list[int]] = field(default_factory=list)
    answers: list[asyncio.Future[Sequence[str | Exception]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = Group(self._send, **self.options)

    async def _send(self, items: list[int]) -> Sequence[str | Exception]:
        self.batches.append(items)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def answer(self, *results: str | Exception) -> None:
        """Answer the batch that is under way: with these results, or with one for each item."""
        self.answers[-1].set_result(results or [f"result of {item}" for item in self.batches[-1]])
        await settle_down()


async def settle_down() -> None:
    """Let all tasks run until each of them waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({}, [128, 2]), ({"weight_of": lambda item: 60 if item == 4 else 10, "most_weight": 45}, [4, 1, *[4] * 31, 1])],
    ids=["items", "weight"],
)
async def test_batches_are_bounded(options: dict[str, Any], sizes: list[int]) -> None:
    """By their items and by their weight; an item that is heavier than all may be goes alone."""
    server = Server(options)
    for item in range(MAX_ITEMS + 2):
        server.group.submit(item)
    await settle_down()
    for _ in sizes:
        await server.answer()
    assert list(map(len, server.batches)) == sizes


@pytest.mark.parametrize(("end", "wrong"), [("set_exception", OSError("gone")), ("set_result", ["only one"])])
async def test_a_batch_that_fails_does_not_stop_the_next(end: str, wrong: Any) -> None:
    """Exactly its items fail, if it raises, or has too few results."""
    server = Server()
    failed = [server.group.submit(item) for item in range(2)]
    await settle_down()
    later = server.group.submit(2)
    getattr(server.answers[-1], end)(wrong)
    await settle_down()
    await server.answer()
    assert [type(each.exception()) for each in failed] == [OSError if isinstance(wrong, OSError) else ValueError] * 2
    assert later.result() == "result of 2"


@pytest.mark.parametrize("factory", [None, getattr(asyncio, "eager_task_factory", None)], ids=["tasks", "eager tasks"])
async def test_a_cancelled_caller_hurts_nobody(factory: Any) -> None:
    """What waits is dropped, and what is under way goes on for the others, also where tasks begin at once."""
    asyncio.get_running_loop().set_task_factory(factory)  # eager ones are new in Python 3.12
    server = Server()
    sent = [server.group.submit(item) for item in range(2)]
    await settle_down()
    waiting = [server.group.submit(item) for item in range(2, 4)]
    sent[0].cancel()
    waiting[0].cancel()
    await server.answer()
    await server.answer()
    assert server.batches == [[0, 1], [3]]
    assert [sent[1].result(), waiting[1].result()] == ["result of 1", "result of 3"]


@pytest.mark.parametrize("swallows", [False, True], ids=["ends", "swallows the cancellation"])
async def test_a_batch_fails_at_its_deadline_whatever_it_is_doing(*, swallows: bool) -> None:
    """Its items fail, and the next batch is sent, although the call may never end."""
    end = asyncio.Event()
    sent, cancelled = list[list[int]](), list[list[int]]()

    async def send(items: list[int]) -> list[str]:
        sent.append(items)
        if len(sent) == 1:
            try:
                await end.wait()
            except asyncio.CancelledError:
                cancelled.append(items)
                if not swallows:
                    raise
                await end.wait()
        return ["answer"] * len(items)

    group = Group(send, timeout=0.02)
    late = group.submit(1)
    await settle_down()
    behind = group.submit(2)
    with pytest.raises(TooLate):
        await late
    async with asyncio.timeout(30):
        assert await behind == "answer"  # without another item that comes
    await group.drain()
    assert (sent, cancelled) == ([[1], [2]], [[1]])
    end.set()


def test_patient_items_have_their_time_from_when_they_are_sent() -> None:
    """Those that come at once do not fail because they wait for each other; nor does one while the loop was busy."""
    clock = SteppedClock()

    async def main() -> None:
        group = Group(lambda items: asyncio.sleep(0.8, ["answer"] * len(items)), timeout=1.0, most_weight=1)
        asyncio.get_running_loop().call_later(0.5, clock.advance, 2)
        assert await asyncio.gather(*[group.submit(item, is_patient=True) for item in range(3)]) == ["answer"] * 3
        first, second = await asyncio.gather(*map(group.submit, range(2)), return_exceptions=True)
        assert (first, type(second)) == ("answer", TooLate)

    clock.run(main())


async def test_patient_items_leave_their_places_where_not_all_fit() -> None:
    """Who waits behind thousands of them would be past its deadline."""
    server = Server()
    for item in range(3 * MAX_ITEMS):
        server.group.submit(item, is_patient=True)
    await settle_down()
    server.group.submit(-1)
    for _ in range(4):  # all of them: the test does not end before
        await server.answer()
    assert server.batches[1][:2] == [-1, MAX_ITEMS]


def test_a_busy_event_loop_gets_its_look_whatever_came_before() -> None:
    """One timer looks at the deadline, also after items with and without patience were mixed."""
    clock = SteppedClock()

    async def main() -> None:
        group = Group(lambda items: asyncio.sleep(items[0], ["answer"]), timeout=10, most_weight=1)
        group.submit(9)
        await asyncio.sleep(1)
        group.submit(1, is_patient=True)
        await asyncio.sleep(1)
        group.submit(2)
        await asyncio.sleep(10)
        late = group.submit(9)
        await asyncio.sleep(8)
        clock.advance(20)
        assert await late == "answer"

    clock.run(main())


async def test_a_batch_that_ends_after_its_deadline_sends_no_other() -> None:
    """One batch at a time is under way, also then."""
    ends, sent = [asyncio.Event(), asyncio.Event()], list[list[int]]()

    async def send(items: list[int]) -> list[str]:
        sent.append(items)
        end = ends[min(items[0], 1)]
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()
        return ["answer"] * len(items)

    group = Group(send, timeout=0.02)
    with pytest.raises(TooLate):
        await group.submit(0)
    group._timeout = 60.0  # only the first batch is late
    group.submit(1)
    await settle_down()
    group.submit(2)
    ends[0].set()
    await settle_down()
    assert sent == [[0], [1]]
    ends[1].set()


def test_an_event_loop_that_ends_meanwhile_leaves_nothing_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is under way then is only forgotten."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    loop = asyncio.new_event_loop()

    async def submit() -> None:
        Server().group.submit(1)
        await settle_down()

    loop.run_until_complete(submit())
    loop.close()
    gc.collect()
    assert [each for each in ignored if "GroupCommit" in repr(each.object)] == []
