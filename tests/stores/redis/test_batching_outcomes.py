"""Group commit: results, failures, cancelled callers, and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.stores.redis.batching import MAX_ITEMS
from tests.stores.redis.batches import Server, outcomes, settle_down

pytestmark = pytest.mark.anyio


# Results and failures


async def test_a_failure_reaches_exactly_its_batch() -> None:
    """All of it, and neither the batch before nor the one after."""
    server = Server()
    first = server.group.submit(0)
    await settle_down()
    second = [server.group.submit(number) for number in (1, 2)]
    server.calls[0].succeed()
    await settle_down()
    third = server.group.submit(3)
    server.calls[1].fail(OSError("lost"))
    await settle_down()
    server.calls[2].succeed()
    assert [str(each) for each in await outcomes(first, *second, third)] == [
        "result of 0",
        "lost",
        "lost",
        "result of 3",
    ]


async def test_items_that_are_sent_again() -> None:
    """Once, by themselves, ahead of those that wait; the others of their batch fail at once."""
    server = Server()
    server.resent = {1, 3}
    results = [server.group.submit(number) for number in range(4)]
    await settle_down()
    later, later_than = server.group.submit(4), asyncio.get_running_loop().time()
    server.calls[0].fail(OSError("lost"))
    await settle_down()
    assert server.batches == [[0, 1, 2, 3], [1, 3]]
    assert [result.done() for result in results] == [True, False, True, False]
    assert server.calls[1].submitted < later_than
    server.calls[1].succeed()
    await settle_down()
    server.calls[2].succeed()
    assert list(map(str, await outcomes(*results, later))) == [
        "lost",
        "result of 1",
        "lost",
        "result of 3",
        "result of 4",
    ]


async def test_an_item_is_sent_again_only_once() -> None:
    """Then it fails like the others."""
    server = Server()
    server.resent = {0}
    result = server.group.submit(0)
    for _ in range(2):
        await settle_down()
        server.calls[-1].fail(OSError("lost"))
    assert list(map(str, await outcomes(result))) == ["lost"]
    assert server.batches == [[0], [0]]


async def test_an_item_whose_own_error_is_a_lost_answer() -> None:
    """It is sent again, and its neighbours keep their results."""
    server = Server()
    server.resent = {1}
    results = [server.group.submit(number) for number in range(2)]
    await settle_down()
    answers: list[Any] = ["first", OSError("lost")]
    server.calls[0].answer.set_result(answers)
    await settle_down()
    server.calls[1].succeed()
    assert await outcomes(*results) == ["first", "result of 1"]


async def test_items_whose_own_errors_are_lost_answers_stay_in_order() -> None:
    """They are sent again as they were submitted."""
    server = Server()
    server.resent = {0, 1, 2}
    results = [server.group.submit(number) for number in range(3)]
    await settle_down()
    answers: list[Any] = [OSError("lost")] * 3
    server.calls[0].answer.set_result(answers)
    await settle_down()
    assert server.batches == [[0, 1, 2], [0, 1, 2]]
    server.calls[1].succeed()
    assert await outcomes(*results) == [f"result of {number}" for number in range(3)]


async def test_an_item_of_a_caller_that_is_gone_is_not_sent_again() -> None:
    """Nobody waits for its result."""
    server = Server()
    server.resent = {0}
    result = server.group.submit(0)
    await settle_down()
    result.cancel()
    server.calls[0].fail(OSError("lost"))
    await settle_down()
    assert server.batches == [[0]]


@pytest.mark.parametrize("answers", [0, 3])
async def test_the_number_of_results_must_be_right(answers: int) -> None:
    """With none or too many, nobody gets a result, because they cannot be attributed."""
    server = Server()
    results = [server.group.submit(number) for number in range(2)]
    await settle_down()
    server.calls[0].answer.set_result(["a result"] * answers)
    assert [type(each) for each in await outcomes(*results)] == [ValueError, ValueError]


@pytest.mark.parametrize("again", [["late"], OSError("late")], ids=["results", "error"])
async def test_a_batch_finishes_once(again: Sequence[str] | Exception) -> None:
    """A second call does nothing, also while another batch is in flight: that one goes on, with no third beside it."""
    server = Server()
    first = server.group.submit(0)
    await settle_down()
    second = server.group.submit(1)
    server.calls[0].succeed()
    await settle_down()
    third = server.group.submit(2)
    server.calls[0].finish(again)
    await settle_down()
    assert server.batches == [[0], [1]]
    server.calls[1].succeed()
    await settle_down()
    server.calls[2].succeed()
    assert await outcomes(first, second, third) == ["result of 0", "result of 1", "result of 2"]


async def test_a_failed_item_may_have_a_fallback() -> None:
    """It is called for each item, and only where a caller still waits."""
    server = Server()
    results = [server.group.submit(number) for number in range(4)]
    server.fallbacks = {1: "fallback", 2: "unused"}
    await settle_down()
    results[2].cancel()
    server.calls[0].fail(OSError("lost"))
    assert [str(each) for each in await outcomes(*results)] == ["lost", "fallback", "", "lost"]
    assert server.fallbacks == {2: "unused"}


async def test_a_result_may_be_an_error() -> None:
    """It is raised to its own caller, and the others get their results."""
    server = Server()
    results = [server.group.submit(number) for number in range(2)]
    await settle_down()
    error = OSError("yours")
    server.calls[0].answer.set_result([error, "mine"])  # type: ignore[list-item]  # a server may answer so
    assert await outcomes(*results) == [error, "mine"]


# Cancelled callers, and closing


async def test_an_item_that_is_cancelled_before_it_is_sent() -> None:
    """It is dropped, the others are sent; a batch with no item left is not sent at all."""
    server = Server()
    first = server.group.submit(0)
    await settle_down()
    rest = [server.group.submit(number) for number in range(1, 4)]
    rest[1].cancel()
    server.calls[0].succeed()
    await settle_down()
    server.group.submit(4).cancel()
    server.calls[1].succeed()
    assert await outcomes(first, rest[0], rest[2]) == ["result of 0", "result of 1", "result of 3"]
    await settle_down()
    assert server.batches == [[0], [1, 3]]


async def test_an_item_that_is_cancelled_in_flight() -> None:
    """The call goes on to its end, also where it carries nothing else."""
    server = Server()

    async def caller(number: int) -> str:
        return await server.group.submit(number)

    cancelled, staying = asyncio.create_task(caller(1)), asyncio.create_task(caller(2))
    await settle_down()
    cancelled.cancel()
    await settle_down()
    assert cancelled.cancelled()
    assert not server.calls[0].answer.cancelled()
    server.calls[0].succeed()
    assert await staying == "result of 2"
    alone = asyncio.create_task(caller(3))
    await settle_down()
    alone.cancel()
    await settle_down()
    assert not server.calls[1].answer.cancelled()


async def test_draining_sees_all_through() -> None:
    """What waits is sent after the batch in flight, and what has joined meanwhile after that."""
    server = Server()
    results = [server.group.submit(0)]
    await settle_down()
    results.append(server.group.submit(1))
    draining = asyncio.create_task(server.group.drain())
    await settle_down()
    for number in (2, 3):
        server.calls[number - 2].succeed()
        results.append(server.group.submit(number))
        await settle_down()
        assert not draining.done()
    server.calls[2].succeed()
    await draining
    assert [await each for each in results] == [f"result of {number}" for number in range(4)]


async def test_draining_ends_when_all_callers_are_gone() -> None:
    """An item whose caller was cancelled is not sent."""
    server = Server()
    await server.group.drain()
    gone = server.group.submit(0)
    gone.cancel()
    await server.group.drain()
    assert server.batches == []


STEPS = st.lists(
    st.tuples(st.just("submit"), st.integers(1, 300))
    | st.tuples(st.just("cancel"), st.integers(0, 10_000))
    | st.tuples(st.sampled_from(["succeed", "fail", "wait"]), st.just(0)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_every_caller_gets_the_outcome_of_its_item(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order: each item is sent at most once, and its caller gets what came of that."""
    asyncio.run(run_steps(steps))


async def run_steps(steps: list[tuple[str, int]]) -> None:
    server = Server()
    results: list[asyncio.Future[str]] = []
    for step, number in [*steps, *[("succeed", 0)] * 60]:
        if step == "submit":
            results += [server.group.submit(len(results) + more) for more in range(number)]
        elif step == "cancel" and results:
            results[number % len(results)].cancel()
        elif step in ("succeed", "fail") and server.calls and not server.calls[-1].answer.done():
            server.calls[-1].succeed() if step == "succeed" else server.calls[-1].fail(OSError("lost"))
            await settle_down()
        elif step != "submit":
            await settle_down()
    require_matching_outcomes(server, results)


def require_matching_outcomes(server: Server, results: list[asyncio.Future[str]]) -> None:
    sent = [item for items in server.batches for item in items]
    assert sent == sorted(set(sent))
    failed = {item for call in server.calls if call.answer.exception() for item in call.items}
    for item, result in enumerate(results):
        if result.cancelled():
            continue
        assert item in sent
        if item in failed:
            assert isinstance(result.exception(), OSError)
        else:
            assert result.result() == f"result of {item}"
    assert all(1 <= len(items) <= MAX_ITEMS for items in server.batches)
