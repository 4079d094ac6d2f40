"""Charging by bytes where the server sends a file by itself: its bytes count as those of any other body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import sleep_forever
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import Message

from asgi_ratelimit import RateLimitMiddleware, Rule
from tests.support.asgi import Peer, ask, http, limited, sends

pytestmark = pytest.mark.anyio

SENDFILE = {"http.response.pathsend": {}, "http.response.zerocopysend": {}}


class Sent:
    """A limit by bytes, which notes the bytes of each answer."""

    def __init__(self) -> None:
        self.bytes: list[int] = []

    def around(self, app: Any) -> RateLimitMiddleware:
        def settle(status: int, headers: Headers, sent: int) -> float:
            self.bytes.append(sent)
            return sent / 1000

        return limited(app, None, rules=[Rule("/", "8/hour", settle=settle)])


class Staying(Peer):
    """A client that waits for the end of its answer."""

    async def receive(self) -> Message:
        return await sleep_forever()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 5000 bytes."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    return path


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


@pytest.mark.parametrize("extensions", [{}, SENDFILE], ids=["bodies", "files"])
async def test_a_file_of_starlette_costs_the_same_on_every_server(path: Path, extensions: Any) -> None:
    """Whether or not the server offers to read it by itself."""

    async def download(request: Request) -> Response:
        return FileResponse(path)

    sent = Sent()
    app = sent.around(Starlette(routes=[Route("/", download)]))
    peers = [Staying() for _ in range(4)]
    for peer in peers:
        await app(http(extensions=extensions), peer.receive, peer.send)
    assert [peer.status for peer in peers] == [200, 200, 429, 429]
    assert sent.bytes == [5000, 5000]


@pytest.mark.parametrize(
    ("length", "counted"),
    [((), 0), ([(b"content-length", b"3000")], 3000), ([(b"content-length", b"0")], 0)]
    + [([(b"content-length", wrong)], 0) for wrong in (b"", b"-1", b"\xb2")],
)
@pytest.mark.parametrize("kind", ["http.response.pathsend", "http.response.zerocopysend"])
async def test_the_declared_length_of_a_file_counts(kind: str, length: Any, counted: int) -> None:
    """The server sends as much as the start of the answer says."""
    sent = Sent()
    await ask(sent.around(sends(start(200, *length), {"type": kind, "path": "/none", "file": -1})))
    assert sent.bytes == [counted]


async def test_parts_of_files_and_bodies_add_up() -> None:
    """It is settled with the last of them, once."""
    sent = Sent()
    part = {"type": "http.response.zerocopysend", "file": -1, "offset": 0, "more_body": True}
    head = {"type": "http.response.body", "body": b"x" * 10, "more_body": True}
    last = {**part, "count": 5000, "more_body": False}
    await ask(sent.around(sends(start(), head, {**part, "count": 2000}, last)))
    assert sent.bytes == [7010]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200)])
async def test_an_answer_without_a_body_has_no_bytes(path: Path, method: str, status: int) -> None:
    """Servers send none there, whatever the app says."""
    sent = Sent()
    with path.open("rb") as file:
        for body in (
            {"type": "http.response.pathsend", "path": str(path)},
            {"type": "http.response.zerocopysend", "file": file},
            {"type": "http.response.body", "body": b"x" * 5000},
        ):
            await ask(sent.around(sends(start(status), body)), http(method=method))
    assert sent.bytes == [0, 0, 0]
