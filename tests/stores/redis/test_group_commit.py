"""Group commit: who travels with whom, who is told what, and what becomes of those who leave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asgi_ratelimit.stores.redis.batching import LARGEST, GroupCommit, Tell

pytestmark = pytest.mark.anyio

CLOSED = ConnectionError("closed")


@dataclass
class Call:
    """One call of ``send``, which returns or raises when the test says so."""

    items: list[int]
    submitted: float
    tell: Tell[str]
    answer: asyncio.Future[Sequence[str]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def succeed(self) -> None:
        self.answer.set_result([f"result of {item}" for item in self.items])

    def fail(self, error: Exception) -> None:
        self.answer.set_exception(error)


class Far:
    """The far end: keeps all calls, and whether it has been closed."""

    def __init__(self, *, hurries: bool = True) -> None:
        self.calls: list[Call] = []
        self.closed = 0
        self.spare: dict[int, str] = {}
        self.known: dict[int, str] = {}
        self.group: GroupCommit[int, str] = GroupCommit(
            self._send, self._without, self._known, self._close, hurries=hurries
        )

    def _send(self, items: list[int], submitted: float, tell: Tell[str]) -> None:
        self.calls.append(Call(items, submitted, tell))
        self.calls[-1].answer.add_done_callback(lambda answer: tell(answer.exception() or answer.result()))

    def _without(self, item: int, error: Exception) -> str:
        if item in self.spare:
            return self.spare.pop(item)
        raise error

    def _known(self, items: Sequence[int]) -> list[str | None] | None:
        return [self.known.get(item) for item in items] if self.known else None

    async def _close(self) -> None:
        self.closed += 1

    @property
    def carried(self) -> list[list[int]]:
        return [call.items for call in self.calls]


async def settle_down() -> None:
    """Let all tasks go on until each of them waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


async def told(*results: asyncio.Future[str]) -> list[str | BaseException]:
    """What each was told: nobody may be left without an answer."""
    async with asyncio.timeout(10):
        return await asyncio.gather(*results, return_exceptions=True)


# Who travels with whom


async def test_the_first_one_goes_at_once() -> None:
    """Nothing is waited for where nothing is under way."""
    far = Far()
    result = far.group.submit(1)
    await settle_down()
    assert far.carried == [[1]]
    far.calls[0].succeed()
    assert await result == "result of 1"


async def test_those_who_come_meanwhile_go_together() -> None:
    """In the next batch, in the order of their coming, as soon as the first is back, and no sooner."""
    far = Far()
    first = far.group.submit(0)
    await settle_down()
    rest = [far.group.submit(number) for number in range(1, 6)]
    await settle_down()
    assert far.carried == [[0]]
    far.calls[0].succeed()
    await settle_down()
    assert far.carried == [[0], [1, 2, 3, 4, 5]]
    far.calls[1].succeed()
    assert await told(first, *rest) == [f"result of {number}" for number in range(6)]


async def test_who_has_waited_and_is_known_by_now_does_not_travel() -> None:
    """What came of a batch may tell what others would be told; who has not waited is not looked up."""
    far = Far()
    far.known = {0: "known", 2: "known", 3: "known"}
    results = [far.group.submit(number) for number in range(1)]
    await settle_down()
    results += [far.group.submit(number) for number in range(1, 4)]
    far.calls[0].succeed()
    await settle_down()
    assert far.carried == [[0], [1]]
    far.calls[1].succeed()
    assert await told(*results) == ["result of 0", "result of 1", "known", "known"]


async def test_where_all_are_known_by_now_the_next_ones_travel() -> None:
    """Those behind a whole batch that does not have to go."""
    far = Far()
    far.known = dict.fromkeys(range(1, LARGEST + 1), "known")
    results = [far.group.submit(0)]
    await settle_down()
    results += [far.group.submit(number) for number in range(1, LARGEST + 2)]
    far.calls[0].succeed()
    await settle_down()
    assert far.carried == [[0], [LARGEST + 1]]
    far.calls[1].succeed()
    assert (await told(*results))[1:] == ["known"] * LARGEST + [f"result of {LARGEST + 1}"]


async def test_where_nobody_can_say_what_is_known_all_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller waits for ever."""
    far = Far()
    monkeypatch.setattr(far.group, "_known", lambda items: 1 / 0)
    results = [far.group.submit(0)]
    await settle_down()
    results.append(far.group.submit(1))
    far.calls[0].succeed()
    await settle_down()
    far.calls[1].succeed()
    assert await told(*results) == ["result of 0", "result of 1"]


async def test_those_who_come_at_once_go_together() -> None:
    """Even the first of them waits for nobody, and is not sent alone."""
    far = Far()
    for number in range(20):
        far.group.submit(number)
    await settle_down()
    assert far.carried == [[*range(20)]]


async def test_after_one_who_went_alone_the_next_goes_at_once() -> None:
    """Not even a turn of the event loop is waited for; those who come meanwhile go together, and so do those after."""
    far = Far()
    far.group.submit(0)
    await settle_down()
    far.calls[0].succeed()
    await settle_down()
    for number in range(1, 4):
        far.group.submit(number)
        assert far.carried == [[0], [1]]
    for number in (1, 2):
        far.calls[number].succeed()
        await settle_down()
    for number in range(4, 6):
        far.group.submit(number)
    await settle_down()
    assert far.carried == [[0], [1], [2, 3], [4, 5]]


async def test_those_who_are_submitted_together_go_together() -> None:
    """Whoever went before them."""
    far = Far()
    far.group.submit(0)
    await settle_down()
    far.calls[0].succeed()
    await settle_down()
    results = far.group.submit_all([1, 2, 3])
    await settle_down()
    assert far.carried == [[0], [1, 2, 3]]
    far.calls[1].succeed()
    assert await told(*results) == ["result of 1", "result of 2", "result of 3"]


async def test_without_a_hurry_nobody_goes_before_the_turn_is_over() -> None:
    """Whoever went alone before them."""
    far = Far(hurries=False)
    far.group.submit(0)
    await settle_down()
    far.calls[0].succeed()
    await settle_down()
    far.group.submit(1)
    far.group.submit(2)
    await settle_down()
    assert far.carried == [[0], [1, 2]]


@pytest.mark.parametrize(
    ("submitted", "sizes"),
    [(LARGEST - 1, [127]), (LARGEST, [128]), (LARGEST + 1, [128, 1]), (3 * LARGEST, [128, 128, 128])],
)
async def test_a_batch_carries_128_at_the_most(submitted: int, sizes: list[int]) -> None:
    """The rest goes in the batches after it."""
    far = Far()
    results = [far.group.submit(number) for number in range(submitted)]
    for number in range(len(sizes)):
        await settle_down()
        far.calls[number].succeed()
    assert await told(*results) == [f"result of {number}" for number in range(submitted)]
    assert [len(items) for items in far.carried] == sizes


async def test_a_batch_is_told_when_its_first_was_submitted() -> None:
    """That is when the longest waiting began; one who has left does not count."""
    far = Far()
    far.group.submit(0)
    await settle_down()
    far.group.submit(1).cancel()
    await settle_down()
    earliest = asyncio.get_running_loop().time()
    far.group.submit(2)
    latest = asyncio.get_running_loop().time()
    far.group.submit(3)
    far.calls[0].succeed()
    await settle_down()
    assert far.carried[1] == [2, 3]
    assert earliest <= far.calls[1].submitted <= latest


async def test_it_goes_on_after_a_rest() -> None:
    """One that comes after everything is done goes at once, too."""
    far = Far()
    for number in range(3):
        result = far.group.submit(number)
        await settle_down()
        far.calls[number].succeed()
        assert await result == f"result of {number}"


# Who is told what


async def test_a_failure_reaches_exactly_its_batch() -> None:
    """All of it, and neither those who came before nor those who come after."""
    far = Far()
    first = far.group.submit(0)
    await settle_down()
    second = [far.group.submit(number) for number in (1, 2)]
    far.calls[0].succeed()
    await settle_down()
    third = far.group.submit(3)
    far.calls[1].fail(OSError("lost"))
    await settle_down()
    far.calls[2].succeed()
    assert [str(each) for each in await told(first, *second, third)] == ["result of 0", "lost", "lost", "result of 3"]


@pytest.mark.parametrize("answers", [0, 1, 3])
async def test_one_result_for_each_or_none_at_all(answers: int) -> None:
    """With too few or too many nobody knows whose they are, so nobody is given one."""
    far = Far()
    results = [far.group.submit(number) for number in range(2)]
    await settle_down()
    far.calls[0].answer.set_result(["somebody's"] * answers)
    assert [type(each) for each in await told(*results)] == [ValueError, ValueError]


@pytest.mark.parametrize("again", [["late"], OSError("late")], ids=["results", "error"])
async def test_what_is_told_twice_is_told_once(again: Sequence[str] | Exception) -> None:
    """Not even where another batch is under way by then: that one goes on, and no third one beside it."""
    far = Far()
    first = far.group.submit(0)
    await settle_down()
    second = far.group.submit(1)
    far.calls[0].succeed()
    await settle_down()
    third = far.group.submit(2)
    far.calls[0].tell(again)
    await settle_down()
    assert far.carried == [[0], [1]]
    far.calls[1].succeed()
    await settle_down()
    far.calls[2].succeed()
    assert await told(first, second, third) == ["result of 0", "result of 1", "result of 2"]


async def test_who_fails_may_have_another_result() -> None:
    """Each is asked for by itself, and only where somebody still waits for it."""
    far = Far()
    results = [far.group.submit(number) for number in range(4)]
    far.spare = {1: "spare", 2: "nobody's"}
    await settle_down()
    results[2].cancel()
    far.calls[0].fail(OSError("lost"))
    assert [str(each) for each in await told(*results)] == ["lost", "spare", "", "lost"]
    assert far.spare == {2: "nobody's"}


async def test_a_result_that_is_an_error_is_its_callers_own() -> None:
    """It is raised to that one, and the others have their results."""
    far = Far()
    results = [far.group.submit(number) for number in range(2)]
    await settle_down()
    error = OSError("yours")
    far.calls[0].answer.set_result([error, "mine"])  # type: ignore[list-item]  # a far end may answer so
    assert await told(*results) == [error, "mine"]


# What becomes of those who leave


async def test_one_who_leaves_before_the_batch_is_dropped() -> None:
    """The others of its batch do not notice; a batch of which nobody is left is not sent at all."""
    far = Far()
    first = far.group.submit(0)
    await settle_down()
    rest = [far.group.submit(number) for number in range(1, 4)]
    rest[1].cancel()
    far.calls[0].succeed()
    await settle_down()
    far.group.submit(4).cancel()
    far.calls[1].succeed()
    assert await told(first, rest[0], rest[2]) == ["result of 0", "result of 1", "result of 3"]
    await settle_down()
    assert far.carried == [[0], [1, 3]]


async def test_one_who_leaves_while_the_batch_is_under_way_stops_nothing() -> None:
    """The call goes on to its end, for its neighbours, and even where it has none."""
    far = Far()

    async def caller(number: int) -> str:
        return await far.group.submit(number)

    leaving, staying = asyncio.create_task(caller(1)), asyncio.create_task(caller(2))
    await settle_down()
    leaving.cancel()
    await settle_down()
    assert leaving.cancelled()
    assert not far.calls[0].answer.cancelled()
    far.calls[0].succeed()
    assert await staying == "result of 2"
    alone = asyncio.create_task(caller(3))
    await settle_down()
    alone.cancel()
    await settle_down()
    assert not far.calls[1].answer.cancelled()


async def test_closing_fails_what_is_waiting() -> None:
    """What is under way comes to its end first; then the far end is closed, once."""
    far = Far()
    under_way = far.group.submit(0)
    await settle_down()
    waiting = far.group.submit(1)
    closing = asyncio.create_task(far.group.aclose(CLOSED))
    await settle_down()
    assert waiting.exception() is CLOSED
    assert (far.closed, closing.done()) == (0, False)
    far.calls[0].succeed()
    await closing
    assert await under_way == "result of 0"
    assert (far.closed, far.carried) == (1, [[0]])


async def test_closing_what_was_never_used() -> None:
    """It closes the far end, and that is all."""
    far = Far()
    await far.group.aclose(CLOSED)
    assert far.closed == 1


STEPS = st.lists(
    st.tuples(st.just("submit"), st.integers(1, 300))
    | st.tuples(st.just("leave"), st.integers(0, 10_000))
    | st.tuples(st.sampled_from(["succeed", "fail", "wait"]), st.just(0)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_everybody_is_always_told_the_truth(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order: each item travels once at the most, and its caller hears of that journey."""
    asyncio.run(live_through(steps))


async def live_through(steps: list[tuple[str, int]]) -> None:
    far = Far()
    results: list[asyncio.Future[str]] = []
    for step, number in [*steps, *[("succeed", 0)] * 60]:
        if step == "submit":
            results += [far.group.submit(len(results) + more) for more in range(number)]
        elif step == "leave" and results:
            results[number % len(results)].cancel()
        elif step in ("succeed", "fail") and far.calls and not far.calls[-1].answer.done():
            far.calls[-1].succeed() if step == "succeed" else far.calls[-1].fail(OSError("lost"))
            await settle_down()
        elif step != "submit":
            await settle_down()
    require_the_truth(far, results)


def require_the_truth(far: Far, results: list[asyncio.Future[str]]) -> None:
    travelled = [item for items in far.carried for item in items]
    assert travelled == sorted(set(travelled))
    failed = {item for call in far.calls if call.answer.exception() for item in call.items}
    for item, result in enumerate(results):
        if result.cancelled():
            continue
        assert item in travelled
        if item in failed:
            assert isinstance(result.exception(), OSError)
        else:
            assert result.result() == f"result of {item}"
    assert all(1 <= len(items) <= LARGEST for items in far.carried)
