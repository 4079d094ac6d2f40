"""``PacedAdapter``: a session of requests whose requests wait for their slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import requests
from requests.adapters import HTTPAdapter

from asgi_ratelimit import ConfigurationError, MemoryStore, PaceTimeout
from asgi_ratelimit.clients import PacedAdapter
from asgi_ratelimit.testing import SteppedClock
from tests.clients.service import BODY, Settled


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
            answer = session.get(f"{service}/whole")
            assert answer.content == BODY
            times.append(session.clock.now)
        assert answer.connection is session.adapters["http://"]  # digest authentication sends again by it
    assert times == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    "wrong", ["https://api.example.com", None, HTTPAdapter, requests.Session()], ids=["url", "none", "class", "session"]
)
def test_what_is_no_adapter_is_refused_at_once(wrong: Any) -> None:
    """Not at the first request; the error shows one."""
    with pytest.raises(ConfigurationError, match=r'wraps an adapter .* PacedAdapter\(HTTPAdapter\(\), "20/s"\)'):
        PacedAdapter(wrong, "20/s")


def test_key_and_cost_are_functions_of_the_prepared_request(service: str) -> None:
    """Or mappings of them by quota, or values; a request without a key goes at once."""
    options = {"key": lambda request: request.headers.get("x-user"), "cost": lambda request: len(request.body or "x")}
    with Session("10/minute burst 10", max_delay=0.0, **options) as session:
        session.post(f"{service}/echo", data="x" * 10, headers={"x-user": "a"})
        session.post(f"{service}/echo", data="x" * 10, headers={"x-user": "b"})
        session.post(f"{service}/echo", data="x" * 10)
        with pytest.raises(PaceTimeout, match="'a'"):
            session.get(f"{service}/whole", headers={"x-user": "a"})


@pytest.mark.parametrize(
    ("data", "status", "content"),
    [
        ("text", 200, b"text"),
        (b"bytes", 200, b"bytes"),
        (None, 200, b""),
        (iter([b"x"]), 429, b'{"error":"slow down"}'),
    ],
    ids=["text", "bytes", "none", "parts"],
)
def test_a_refused_request_is_sent_again(service: str, data: Any, status: int, content: bytes) -> None:
    """If its whole body is at hand."""
    with Session("100/s", retries=1) as session:
        answer = session.post(f"{service}/refused?{uuid4()}", data=data)
    assert (answer.status_code, answer.content) == (status, content)


READERS: dict[str, Callable[[requests.Response], bytes]] = {
    "content": lambda answer: answer.content,
    "iter_content": lambda answer: b"".join(answer.iter_content(5)),
    "raw.read": lambda answer: answer.raw.read(decode_content=True),
    "raw.read1": lambda answer: b"".join(iter(lambda: answer.raw.read1(5, decode_content=True), b"")),
    "raw": lambda answer: b"".join(answer.raw),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("path", ["whole", "streamed", "compressed", "empty"])
def test_a_request_is_under_way_until_its_body_was_read(service: str, path: str, read: Any) -> None:
    """By whatever method; then it is settled, decoded, and the next one may go."""
    settle = Settled()
    with Session("100/s", concurrency=1, max_delay=0.5, settle=settle) as session:
        answer = session.get(f"{service}/{path}", stream=True)
        with pytest.raises(PaceTimeout):
            session.get(f"{service}/whole")
        assert settle.answers == []
        assert read(answer) == (b"" if path == "empty" else BODY)
        assert [body for _, _, body in settle.answers] == [b"" if path == "empty" else BODY]
        assert session.get(f"{service}/whole").content == BODY


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("settle", [None, Settled()], ids=["not settled", "settled"])
def test_a_request_that_is_dropped_is_not_under_way(service: str, settle: Settled | None) -> None:
    """Nothing else refers to it."""
    with Session("100/s", concurrency=1, max_delay=0.5, settle=settle) as session:
        answer = session.get(f"{service}/streamed", stream=True)
        del answer  # without a garbage collection
        assert session.get(f"{service}/whole").content == BODY


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
