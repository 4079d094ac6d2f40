"""Group commit: which items share a batch."""

from __future__ import annotations

import asyncio

import pytest

from asgi_ratelimit.stores.redis.batching import CALLER_US, ENOUGH, LASTING, MAX_ITEMS
from tests.stores.redis.batches import FailingLookup, Server, outcomes, settle_down

pytestmark = pytest.mark.anyio


async def test_the_first_item_is_sent_at_once() -> None:
    """There is no wait when nothing is in flight."""
    server = Server()
    result = server.group.submit(1)
    await settle_down()
    assert server.batches == [[1]]
    server.calls[0].succeed()
    assert await result == "result of 1"


async def test_items_that_come_meanwhile_share_a_batch() -> None:
    """It is sent, in the order of submission, as soon as the first batch is back, and no sooner."""
    server = Server()
    first = server.group.submit(0)
    await settle_down()
    rest = [server.group.submit(number) for number in range(1, 6)]
    await settle_down()
    assert server.batches == [[0]]
    server.calls[0].succeed()
    await settle_down()
    assert server.batches == [[0], [1, 2, 3, 4, 5]]
    server.calls[1].succeed()
    assert await outcomes(first, *rest) == [f"result of {number}" for number in range(6)]


async def test_an_item_with_an_early_answer_is_not_sent() -> None:
    """After it has waited for another batch; an item that has not waited is always sent."""
    server = Server()
    server.early = {0: "early", 2: "early", 3: "early"}
    results = [server.group.submit(number) for number in range(1)]
    await settle_down()
    results += [server.group.submit(number) for number in range(1, 4)]
    server.calls[0].succeed()
    await settle_down()
    assert server.batches == [[0], [1]]
    server.calls[1].succeed()
    assert await outcomes(*results) == ["result of 0", "result of 1", "early", "early"]


async def test_a_batch_of_early_answers_is_not_sent() -> None:
    """The items behind it are sent in its place."""
    server = Server()
    server.early = dict.fromkeys(range(1, MAX_ITEMS + 1), "early")
    results = [server.group.submit(0)]
    await settle_down()
    results += [server.group.submit(number) for number in range(1, MAX_ITEMS + 2)]
    server.calls[0].succeed()
    await settle_down()
    assert server.batches == [[0], [MAX_ITEMS + 1]]
    server.calls[1].succeed()
    assert (await outcomes(*results))[1:] == ["early"] * MAX_ITEMS + [f"result of {MAX_ITEMS + 1}"]


async def test_early_answers_that_fail() -> None:
    """All items are sent, and no caller waits for ever."""
    server = Server()
    server.early = FailingLookup()
    results = [server.group.submit(0)]
    await settle_down()
    results.append(server.group.submit(1))
    server.calls[0].succeed()
    await settle_down()
    server.calls[1].succeed()
    assert await outcomes(*results) == ["result of 0", "result of 1"]


async def test_items_of_one_iteration_share_a_batch() -> None:
    """The first of them is not sent alone."""
    server = Server()
    for number in range(20):
        server.group.submit(number)
    await settle_down()
    assert server.batches == [[*range(20)]]


async def test_after_a_single_item_the_next_is_sent_at_once() -> None:
    """Within the same iteration of the event loop; items that come meanwhile share a batch, and so do those after."""
    server = Server()
    server.group.submit(0)
    await settle_down()
    server.calls[0].succeed()
    await settle_down()
    for number in range(1, 4):
        server.group.submit(number)
        assert server.batches == [[0], [1]]
    for number in (1, 2):
        server.calls[number].succeed()
        await settle_down()
    for number in range(4, 6):
        server.group.submit(number)
    await settle_down()
    assert server.batches == [[0], [1], [2, 3], [4, 5]]


async def test_items_that_are_submitted_together_share_a_batch() -> None:
    """Whatever was sent before them."""
    server = Server()
    server.group.submit(0)
    await settle_down()
    server.calls[0].succeed()
    await settle_down()
    results = server.group.submit_all([1, 2, 3])
    await settle_down()
    assert server.batches == [[0], [1, 2, 3]]
    server.calls[1].succeed()
    assert await outcomes(*results) == ["result of 1", "result of 2", "result of 3"]


async def test_under_lasting_load_half_of_the_items_go_while_the_callers_of_the_other_half_go_on() -> None:
    """Enough items go without the rest of their iteration; then the halves take turns."""
    server = Server(now_us=lambda: 0.0)
    for number in range(LASTING):
        load(server, 100 * number, 2 * ENOUGH)
        await settle_down()
        server.calls[number].succeed()
        await settle_down()
    for number in range(LASTING, LASTING + 3):
        load(server, 100 * number, 2 * ENOUGH if number == LASTING else ENOUGH)
        server.calls[number].succeed()
        await settle_down()
    assert [len(items) for items in server.batches] == [2 * ENOUGH] * LASTING + [ENOUGH] * 4
    assert server.batches[LASTING] == [*range(100 * LASTING, 100 * LASTING + ENOUGH)]


@pytest.mark.parametrize(
    ("batches", "items", "flight_us", "size"),
    [
        (LASTING, 2 * ENOUGH, 2 * ENOUGH * CALLER_US - 1.0, ENOUGH),
        (LASTING, 2 * ENOUGH, 2 * ENOUGH * CALLER_US, 2 * ENOUGH),
        (LASTING - 1, 2 * ENOUGH, 0.0, 2 * ENOUGH),
        (LASTING, 2 * ENOUGH - 1, 0.0, 2 * ENOUGH),
        (LASTING, 1, 0.0, 2 * ENOUGH),
    ],
    ids=["near", "far", "burst", "few", "one"],
)
async def test_items_go_in_halves_only_where_that_is_quicker(
    batches: int, items: int, flight_us: float, size: int
) -> None:
    """Not in a burst, not where the server is further away than all callers take, and not after batches of few."""
    now_us = [0.0]
    server = Server(eager=False, now_us=lambda: now_us[0])
    for number in range(batches):
        load(server, 0, items)
        await settle_down()
        now_us[0] += flight_us
        server.calls[number].succeed()
        await settle_down()
    load(server, 1000, 2 * ENOUGH)
    await settle_down()
    assert [len(batch) for batch in server.batches] == [items] * batches + [size]


@pytest.mark.parametrize(
    ("waiting", "size"), [(ENOUGH, ENOUGH), (96, 80), (120, 92), (900, MAX_ITEMS)], ids=["even", "more", "many", "most"]
)
async def test_the_next_batch_is_half_of_all_items_under_way(waiting: int, size: int) -> None:
    """Those that have just come back count as well, so that the halves do not become a large and a small one."""
    server = Server(eager=False, now_us=lambda: 0.0)
    for number in range(LASTING):
        load(server, 0, 2 * ENOUGH)
        await settle_down()
        if number == LASTING - 1:
            load(server, 1000, waiting)
        server.calls[number].succeed()
        await settle_down()
    assert server.batches[LASTING] == [*range(1000, 1000 + size)]


def load(server: Server, first: int, count: int) -> None:
    """Submit items within one iteration of the event loop."""
    for item in range(first, first + count):
        server.group.submit(item)


async def test_an_item_waits_for_the_iteration_unless_eager() -> None:
    """Also after a single item."""
    server = Server(eager=False)
    server.group.submit(0)
    await settle_down()
    server.calls[0].succeed()
    await settle_down()
    server.group.submit(1)
    server.group.submit(2)
    await settle_down()
    assert server.batches == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("submitted", "sizes"),
    [(MAX_ITEMS - 1, [127]), (MAX_ITEMS, [128]), (MAX_ITEMS + 1, [128, 1]), (3 * MAX_ITEMS, [128, 128, 128])],
)
async def test_a_batch_has_at_most_128_items(submitted: int, sizes: list[int]) -> None:
    """The others are in the batches after it."""
    server = Server()
    results = [server.group.submit(number) for number in range(submitted)]
    for number in range(len(sizes)):
        await settle_down()
        server.calls[number].succeed()
    assert await outcomes(*results) == [f"result of {number}" for number in range(submitted)]
    assert [len(items) for items in server.batches] == sizes


async def test_items_without_a_result_are_sent_again() -> None:
    """Ahead of all others and in order, unless they were cancelled: the server may stop in the middle of a batch."""
    server = Server()
    results = [server.group.submit(item) for item in range(5)]
    await settle_down()
    results += [server.group.submit(item) for item in range(5, 7)]
    results[3].cancel()
    server.calls[0].answer.set_result(["result of 0", "result of 1"])
    await settle_down()
    assert server.batches == [[0, 1, 2, 3, 4], [2, 4, 5, 6]]
    server.calls[1].succeed()
    assert [str(each) for each in await outcomes(*results)] == [
        "" if item == 3 else f"result of {item}" for item in range(7)
    ]


async def test_a_batch_has_the_time_of_its_first_item() -> None:
    """That is when the longest wait began; a cancelled item does not count."""
    server = Server()
    server.group.submit(0)
    await settle_down()
    server.group.submit(1).cancel()
    await settle_down()
    earliest = asyncio.get_running_loop().time()
    server.group.submit(2)
    latest = asyncio.get_running_loop().time()
    server.group.submit(3)
    server.calls[0].succeed()
    await settle_down()
    assert server.batches[1] == [2, 3]
    assert earliest <= server.calls[1].submitted <= latest


async def test_an_item_after_an_idle_time_is_sent_at_once() -> None:
    """Like the first one."""
    server = Server()
    for number in range(3):
        result = server.group.submit(number)
        await settle_down()
        server.calls[number].succeed()
        assert await result == f"result of {number}"
