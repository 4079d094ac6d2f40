"""The figures for each number of clients, from given rounds."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.parts import clients
from benchmarks.parts.clients import WARM_CLIENTS, Phase, Subject, chunks_of, part_of
from benchmarks.plan import plan
from benchmarks.processes.runner import Failed, Runner
from benchmarks.subject import PEERS, Where
from benchmarks.subject import Subject as Identity


class FakeRunner:
    """A runner whose process needs the same CPU time for each request, and ours 100 bytes for each new client."""

    stalls = 0
    """How many of its next monitored visits have a pause of 20 ms that the machine makes."""

    def __init__(self, peer: str, where: Where, cpu_us: float, error: str = "") -> None:
        self.subject = Identity(PEERS[peer], where)
        self.redis = object() if where == "redis" else None
        self.calls: list[dict[str, Any]] = []
        self._cpu, self._error, self._seen = cpu_us / 1e6, error, set[int]()
        self._bytes = 100 if peer == "ours" else 0

    def use(self, *_: object, **__: object) -> None:
        if self._error:
            raise Failed(self._error)

    def restart(self) -> None:
        """There is no process."""

    def call(self, _: str, *, first: int, clients: int, **options: Any) -> dict[str, Any]:
        requests = clients * options.get("times", 1)
        if clients and "warm" in options:
            self.calls.append({"first": first, "clients": clients, **options})
            self._seen |= set(range(first, first + clients))
        used = {"cpu": self._cpu * requests, "wall": 2 * self._cpu * requests, "pause": self._cpu * 64}
        if self.stalls and options.get("monitored"):
            self.stalls -= 1
            used["pause"] += 0.020
        return {
            **used,
            "requests": requests,
            "memory": 1e6 + self._bytes * len(self._seen),
            "statuses": {"200": requests},
        }


def runner(peer: str, where: Where, cpu_us: float, error: str = "") -> Runner:
    return cast("Runner", FakeRunner(peer, where, cpu_us, error))


def subject(peer: str, where: Where, **rounds: list[float]) -> Subject:
    """A subject of which each phase has these CPU times, one for each pass over one chunk."""
    made = Subject(runner(peer, where, 0.0))
    for phase, times in rounds.items():
        for number, cpu in enumerate(times):
            (chunk,) = chunks_of(100, cast("Phase", phase), 2 * number, 0)
            made.rounds[chunk] = {"cpu": cpu, "wall": 2 * cpu, "memory": 0.0}
    return made


@pytest.mark.parametrize("number_of_clients", [100, 10_000, 100_000, 1_000_000])
def test_a_pass_visits_each_client_once(number_of_clients: int) -> None:
    """Its chunks have no overlap and no gap; only the clients that warm the app up are missing."""
    visited = chunks_of(number_of_clients, "new", 0, 500)
    numbers = [client for chunk in visited for client in range(chunk.first, chunk.first + chunk.clients)]
    assert numbers == list(range(500 + WARM_CLIENTS, 500 + number_of_clients))


def test_passes_measure_and_monitor_by_turns() -> None:
    """What one pass monitors, the next one measures, and both occur within a pass."""
    even, odd = ([chunk.monitored for chunk in chunks_of(10_000, "new", number, 0)] for number in (0, 1))
    assert even == [not each for each in odd]
    assert set(even) == {True, False}


def test_cpu_counts_more_than_the_bare_app_and_scaled() -> None:
    """The best pass counts; the scale is that of a bare app of 7 µs."""
    bare, ours = subject("bare", "none", new=[14.0, 15.0]), subject("ours", "memory", new=[20.0, 30.0])
    row = part_of([bare, ours], 100).row("ours memory")
    assert row
    assert row.figure("cpu_new") == 6
    assert row.figure("scaled_new") == 3


def test_throughput_is_compared_with_plain_evalsha_on_the_same_chunks() -> None:
    """It is the median of the ratios."""
    bare, plain = subject("bare", "none", new=[10.0] * 3), subject("plain", "redis", new=[60.0, 80.0, 90.0])
    row = part_of([bare, plain, subject("ours", "redis", new=[20.0] * 3)], 100).row("ours redis")
    assert row
    assert row.figure("throughput_new") == 4


def test_a_run_measures_every_row() -> None:
    """CPU, memory, pauses and throughput come from the answers; a broken peer has its error in its row."""
    runners = [
        runner("bare", "none", 10.0),
        runner("ours", "memory", 16.0),
        runner("ours", "redis", 20.0),
        runner("plain", "redis", 60.0),
        runner("limits", "redis", 60.0),
        runner("limits", "memory", 14.0, "broken"),
        runner("slowapi", "memory", 50.0),
    ]
    parts = {part.name: part for part in clients.run(runners, plan(quick=False, clients=1000, subjects=7))}
    assert list(parts) == ["clients_100", "clients_10000", "clients_100000", "clients_1000000"]
    ours = parts["clients_100000"].row("ours redis")
    assert ours
    assert ours.figure("cpu_new") == pytest.approx(10)
    assert ours.figure("scaled_again") == pytest.approx(7)
    assert ours.figure("throughput_new") == pytest.approx(3)
    assert ours.figure("pause") == pytest.approx(0.64)
    assert ours.figure("bytes") == pytest.approx(100)
    assert [row.subject.name for row in parts["clients_100"].rows] == [each.subject.name for each in runners[:-1]]
    assert parts["clients_100"].rows[-1].error == "broken"


@pytest.mark.parametrize(("stalls", "pause"), [(10, 0.64), (1000, 20.64)])
def test_a_long_pause_is_measured_again(stalls: int, pause: float) -> None:
    """The machine may have made it in all passes; one that comes again counts. CPU is that of the first passes."""
    runners = [runner("bare", "none", 10.0), runner("ours", "redis", 20.0)]
    fake = cast("FakeRunner", runners[1])
    fake.stalls = stalls
    parts = {part.name: part for part in clients.run(runners, plan(quick=True, clients=1000, subjects=2))}
    ours = parts["clients_100"].row("ours redis")
    assert ours
    assert ours.figure("pause") == pytest.approx(pause)
    assert ours.figure("cpu_new") == pytest.approx(10)
    visits = [len(cast("FakeRunner", each).calls) for each in runners]
    assert visits[1] > visits[0]


def test_slow_peers_are_sampled_and_then_left_out() -> None:
    """The tables say so; plain EVALSHA stays, for comparison."""
    runners = [runner("bare", "none", 10.0), runner("plain", "redis", 60.0), runner("limits", "redis", 60.0)]
    parts = clients.run(runners, plan(quick=False, clients=1000, subjects=3))
    assert parts[0].note == ""
    assert parts[1].note == "A sample of the clients only, one chunk in 5: limits, redis."
    assert [row.subject.name for row in parts[3].rows] == ["bare", "plain redis"]
    assert parts[3].note == "Peers that take over 30 µs more at fewer clients are left out."


def test_the_bare_app_visits_every_chunk() -> None:
    """So that as many of its pauses are measured as of ours."""
    runners = [runner("bare", "none", 10.0), runner("plain", "redis", 60.0), runner("ours", "redis", 20.0)]
    clients.run(runners, plan(quick=False, clients=1000, subjects=3))
    bare, plain, ours = [[call["first"] for call in cast("FakeRunner", each).calls] for each in runners]
    assert bare == ours
    assert len(plain) < len(ours)


def test_no_address_is_new_twice() -> None:
    """Each pass has clients of its own, because a process may remember those of earlier passes."""
    bare = runner("bare", "none", 10.0)
    clients.run([bare], plan(quick=True, clients=1000, subjects=1))
    visits = [call["first"] for call in cast("FakeRunner", bare).calls]
    assert visits
    assert all(visits.count(first) == 2 for first in visits)  # new, and again
