"""``PacedAdapter``: a session of requests whose requests wait for their slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from asgi_ratelimit import ConfigurationError, MemoryStore, PaceTimeout, QuotaError
from asgi_ratelimit.clients import PacedAdapter
from asgi_ratelimit.testing import SteppedClock
from tests.clients.service import BODY, LINES, Settled
from tests.support.names import named


class Session(requests.Session):
    """A session over one paced adapter, on a clock that is stepped by hand."""

    def __init__(self, quota: Any = "10/s", **options: Any) -> None:
        super().__init__()
        self.trust_env = False
        self.clock = SteppedClock(0)
        self.mount("http://", PacedAdapter(HTTPAdapter(), quota, **{"store": MemoryStore(clock=self.clock), **options}))


def test_requests_wait_for_their_slots(service: str) -> None:
    """Each of them sleeps until its own."""
    with Session("2/s") as session:
        times = []
        for _ in range(3):
            assert session.get(f"{service}/whole").content == BODY
            times.append(session.clock.now)
    assert times == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    "wrong", ["https://api.example.com", None, HTTPAdapter, requests.Session()], ids=["url", "none", "class", "session"]
)
def test_what_is_no_adapter_is_refused_at_once(wrong: Any) -> None:
    """Not at the first request; the error shows one."""
    with pytest.raises(ConfigurationError, match=r'wraps an adapter .* PacedAdapter\(HTTPAdapter\(\), "20/s"\)'):
        PacedAdapter(wrong, "20/s")


def test_a_redirect_costs_as_much_as_a_request(service: str) -> None:
    """Each hop goes through the adapter."""
    with Session("2/s") as session:
        assert session.get(f"{service}/redirect").content == BODY
        assert session.clock.now == 0.5


def test_the_default_key_is_the_host(service: str) -> None:
    """Each host has its own bucket."""
    with Session("1/minute", max_delay=0.0) as session:
        session.get(f"{service}/whole")
        session.get(f"{service.replace('127.0.0.1', 'localhost')}/whole")
        with pytest.raises(PaceTimeout, match=r"127\.0\.0\.1"):
            session.get(f"{service}/whole")


def test_key_and_cost_are_functions_of_the_prepared_request(service: str) -> None:
    """Or mappings of them by quota, or values; a request without a key goes at once."""
    options = {"key": lambda request: request.headers.get("x-user"), "cost": lambda request: len(request.body or "x")}
    with Session("10/minute burst 10", max_delay=0.0, **options) as session:
        session.post(f"{service}/echo", data="x" * 10, headers={"x-user": "a"})
        session.post(f"{service}/echo", data="x" * 10, headers={"x-user": "b"})
        session.post(f"{service}/echo", data="x" * 10)
        with pytest.raises(PaceTimeout, match="'a'"):
            session.get(f"{service}/whole", headers={"x-user": "a"})


@pytest.mark.parametrize("data", ["text", b"bytes", None])
def test_a_refused_request_is_sent_again(service: str, data: Any) -> None:
    """With its body."""
    with Session("100/s", retries=1) as session:
        answer = session.post(f"{service}/refused?{uuid4()}", data=data)
    assert (answer.status_code, answer.content) == (
        200,
        (data or "").encode() if isinstance(data, str) or not data else data,
    )


def test_a_body_that_is_not_at_hand_is_not_sent_again(service: str) -> None:
    """It could be read only once."""
    with Session("100/s", retries=1) as session:
        assert session.post(f"{service}/refused?{uuid4()}", data=iter([b"x"])).status_code == 429


READERS: dict[str, Callable[[requests.Response], bytes]] = {
    "content": lambda answer: answer.content,
    "iter_content": lambda answer: b"".join(answer.iter_content(5)),
    "iter_lines": lambda answer: b"".join(line + b"\n" for line in answer.iter_lines()),
    "raw.read": lambda answer: answer.raw.read(decode_content=True),
    "raw.read in parts": lambda answer: b"".join(iter(lambda: answer.raw.read(5, decode_content=True), b"")),
    "raw.read1": lambda answer: b"".join(iter(lambda: answer.raw.read1(5, decode_content=True), b"")),
    "raw": lambda answer: b"".join(answer.raw),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("path", ["whole", "streamed", "compressed", "empty"])
def test_a_request_is_under_way_until_its_body_was_read(service: str, path: str, read: Any) -> None:
    """By whatever method; then the next one may go."""
    with Session("100/s", concurrency=1, max_delay=0.5) as session:
        answer = session.get(f"{service}/{path}", stream=True)
        with pytest.raises(PaceTimeout):
            session.get(f"{service}/whole")
        assert read(answer) == (b"" if path == "empty" else BODY)
        assert session.get(f"{service}/whole").content == BODY


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("path", ["whole", "streamed", "compressed"])
def test_a_request_is_settled_when_its_body_was_read(service: str, path: str, read: Any) -> None:
    """By what was read of it, decoded; so a second request of the same cost fits."""
    settle = Settled()
    with Session("10/day burst 10", cost=6, settle=settle, max_delay=0.0) as session:
        answer = session.get(f"{service}/{path}", stream=True)
        assert settle.answers == []
        read(answer)
        assert settle.answers == [(200, "text/plain; charset=utf-8", BODY)]
        session.get(f"{service}/whole")


def test_a_request_that_is_cut_is_settled(service: str) -> None:
    """By what was read until then."""
    settle = Settled()
    with Session("10/day burst 10", cost=6, settle=settle, max_delay=0.0) as session:
        with session.get(f"{service}/whole", stream=True) as answer:
            next(answer.iter_content(5))
        session.get(f"{service}/empty")
    assert settle.answers == [(200, "text/plain; charset=utf-8", BODY[:5]), (204, None, b"")]


def test_a_request_is_settled_at_its_headers(service: str) -> None:
    """Where the function does not read the body."""
    settle = Settled(reads_body=False)
    with Session("10/day burst 10", cost=6, settle=settle, max_delay=0.0) as session:
        for _ in range(2):
            answer = session.get(f"{service}/streamed", stream=True)
            assert settle.answers.pop() == (200, "text/plain; charset=utf-8", b"")
            assert answer.content == BODY


def test_a_cost_that_learns_gets_the_prepared_request(service: str) -> None:
    """As its other functions do."""
    learned: list[Any] = []

    class Learning:
        def __call__(self, request: requests.PreparedRequest) -> int:
            return 6 if request.method == "GET" else 1

        def learn(self, request: requests.PreparedRequest, charged: Any, actual: Any) -> None:
            learned.append((request.method, charged, actual))

    with Session("10/day burst 10", cost=Learning(), settle=Settled()) as session:
        session.get(f"{service}/whole")
    assert learned == [("GET", 6, 1)]


def test_a_request_is_under_way_until_it_is_closed(service: str) -> None:
    """Also where its body was read in part, or not at all."""
    with Session("100/s", concurrency=1, max_delay=0.5) as session:
        for lines in (0, 1):
            with session.get(f"{service}/streamed", stream=True) as answer:
                read = answer.iter_lines()
                assert [next(read) for _ in range(lines)] == [line.strip() for line in LINES[:lines]]
        assert session.get(f"{service}/whole").content == BODY


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("settle", [None, Settled()], ids=["not settled", "settled"])
def test_a_request_that_is_dropped_is_not_under_way(service: str, settle: Settled | None) -> None:
    """Nothing else refers to it."""
    with Session("100/s", concurrency=1, max_delay=0.5, settle=settle) as session:
        answer = session.get(f"{service}/streamed", stream=True)
        del answer  # without a garbage collection
        assert session.get(f"{service}/whole").content == BODY


def test_a_request_that_fails_is_not_under_way(service: str) -> None:
    """The error is that of requests."""
    with Session("100/s", concurrency=1, max_delay=0.5, key="all") as session:
        with pytest.raises(requests.ConnectionError):
            session.get("http://127.0.0.1:1/")
        assert session.get(f"{service}/whole").content == BODY


class Broken:
    """A body that breaks off."""

    def read(self, *_args: Any) -> bytes:
        raise OSError("reset")

    def stream(self, *_args: Any, **_options: Any) -> Iterator[bytes]:
        yield b"hello"
        raise OSError("reset")

    def close(self) -> None: ...


class Breaking(BaseAdapter):
    """An adapter whose answers break off."""

    def send(self, request: requests.PreparedRequest, *_args: Any, **_options: Any) -> requests.Response:  # type: ignore[override]
        answer = requests.Response()
        answer.status_code, answer.raw, answer.url = 200, Broken(), request.url or ""
        return answer

    def close(self) -> None: ...


@pytest.mark.parametrize("read", [lambda answer: answer.raw.read(5), list], ids=["raw.read", "iter_content"])
def test_a_request_whose_answer_breaks_off_is_not_under_way(read: Any) -> None:
    """Although the answer is still there, and nobody has closed it."""
    with requests.Session() as session:
        session.mount("http://", PacedAdapter(Breaking(), "100/s burst 10", concurrency=1, max_delay=0.0))
        for _ in range(2):
            answer = session.get("http://one.example/", stream=True)
            with pytest.raises(OSError, match="reset"):
                read(answer)


class Recorded(HTTPAdapter):
    """An adapter that records how it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.options: list[Any] = []

    def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
        self.options.append((args, options))
        return super().send(request, *args, **options)

    def close(self) -> None:
        self.options.append("closed")
        super().close()


def test_the_wrapped_adapter_gets_all_options_and_is_closed(service: str) -> None:
    """Timeouts, certificates and proxies are its own."""
    adapter = Recorded()
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", PacedAdapter(adapter, "100/s"))
        session.get(f"{service}/whole", timeout=7, verify=False)
    (_, options), closed = adapter.options
    assert (options["timeout"], options["verify"], closed) == (7, False, "closed")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"quota": "10/fortnight"}, QuotaError),
        ({"retries": -1}, ConfigurationError),
        ({"max_delay": -1}, ValueError),
    ],
    ids=named,
)
def test_arguments_are_checked_at_once(wrong: dict[str, Any], error: type[Exception]) -> None:
    """Not at the first request."""
    with pytest.raises(error):
        PacedAdapter(HTTPAdapter(), **{"quota": "10/s", **wrong})


def test_the_repr() -> None:
    """It names the adapter that is wrapped."""
    assert repr(PacedAdapter(HTTPAdapter(), "10/s")).startswith("PacedAdapter(<requests.adapters.HTTPAdapter")
