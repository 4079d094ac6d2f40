"""Ways past a limit that have worked somewhere, against a real server: each one meets its own bucket, or is refused."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from tests.support.server import HOST, Uvicorn

TIMEOUT = 20.0
ROWS = count(1)
NONCE = b"dGhlIHNhbXBsZSBub25jZQ=="
LONG = b"k" * 8192

# What a client sends who wants nothing but its share, by area; nothing where it is not here.
HONEST = {
    "direct": [],
    "xff": [b"X-Forwarded-For: 192.0.2.1"],
    "header": [b"X-Api-Key: good"],
}


@dataclass
class Row:
    """A trick in an area of the app: after one honest request, which passes, it must be answered with ``status``."""

    area: str
    trick: list[bytes]
    status: int | set[int] = 429
    honest: list[bytes] | None = None
    target: bytes = b"/%(area)b/%(row)d"
    honest_target: bytes = b"/%(area)b/%(row)d"
    method: bytes = b"GET"
    version: bytes = b"HTTP/1.1"
    number: int = field(default_factory=lambda: next(ROWS))

    @property
    def id(self) -> str:
        """What it shows as."""
        shown = b" ".join([self.method, self.target, *self.trick])
        return f"{self.number} {self.area} {shown[:60]!r}"


# What a server may read otherwise; addresses, values and cookies alone are in tests/keys and tests/inbound
VALUES = [
    Row("direct", [b"X-Forwarded-For: 6.6.6.6, 10.0.0.1", b"X-Forwarded-For: 7.7.7.7"]),
    Row("xff", [b"X-Forwarded-For: " + LONG, b"X-Forwarded-For: \xff\xfe,  192.0.2.1\t"]),
    Row("header", [b"x-api-key: good"]),
    Row("header", [b"X-Api-Key: good", b"x_api_key: junk", b"X-Forwarded-For: 6.6.6.6"]),
    Row("header", [b"X-Api-Key: " + LONG], honest=[b"x-api-key: " + LONG + b" "]),
    Row("header", [b"X-Api-Key: \xff\xfe\xed\xa0\x80"], honest=[b"x-api-key: \xff\xfe\xed\xa0\x80"]),
    Row("header", [b"X-Api-Key:"], honest=[b"x-api-key: "]),
    Row("header", [], honest=[]),
    Row("header", [b"X-Api-Key : good"], 400),
    Row("header", [b"X-Api-Key: go\x00od"], {400, 429}, honest=[b"X-Api-Key: good"]),
]

PATHS = [
    *(
        Row("number", [], status, target=target)
        for target, status in {
            b"/number/%(row)d?x=/../": 429,
            b"/number/000%(row)d": 429,
            b"/%%6eumber/%(row)d": 429,
            b"/number%%2F%(row)d": 429,
            b"/number/%%30%(row)d": 429,
            b"http://x/number/%(row)d": {404, 429},
            b"/number/%(row)d#x": {404, 429},
            b"/number/%(row)d%%2F": 429,
            b"/Number/%(row)d": 404,
            b"/x/../number/%(row)d": 429,
            b"/number/%(row)d;x=1": 404,
            b"/number/%(row)d%%00": 404,
            b"/number/%(row)d%%0A": 429,
            b"/number/%%0A%(row)d": 404,
            b"/number\\%(row)d": {400, 404},
            b"number/%(row)d": {400, 429},
            b"*": {400, 404},
            b"/number/\xff%(row)d": {400, 404},
        }.items()
    ),
    *(
        Row("mounted", [], status, target=target)
        for target, status in {
            b"/mounted/0%(row)d": 429,
            b"/mounted%%2F%(row)d": 429,
            b"/mounted//%(row)d": 429,
            b"/mounted/%(row)d/": 429,
            b"/mounted/../mounted/%(row)d": 429,
        }.items()
    ),
    Row("any", [b"X-Original-URL: /free", b"X-Rewrite-URL: /free", b"X-Forwarded-Prefix: /free"]),
    Row("any", [b"X-Forwarded-Path: /free", b"X-Script-Name: /free", b"Referer: /free"]),
]

METHODS = [
    *(
        Row("any", [], method=method)
        for method in (b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"PROPFIND", b"OPTIONS")
    ),
    Row("any", [], {400, 429}, method=b"BREW"),
    Row("any", [], {400, 429}, method=b"get"),
    Row("any", [b"Origin: http://x", b"Access-Control-Request-Method: GET"]),
    Row("get", [], method=b"HEAD"),
    Row("get", [], {400, 405, 429}, method=b"get"),
    Row("get", [], {400, 405}, method=b"BREW"),
    Row("get", [b"X-HTTP-Method-Override: GET"], 405, method=b"POST"),
    Row("get", [b"X-HTTP-Method-Override: POST", b"X-HTTP-Method: POST", b"X-Method-Override: POST"]),
    Row("get", [], target=b"/%(area)b/%(row)d?_method=POST"),
]

PROTOCOL = [
    Row("any", [], version=b"HTTP/1.0"),
    Row("any", [b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", b"Connection: upgrade"]),
    Row("any", [b"Expect: 100-continue", b"Content-Length: 5"]),
    Row("any", [b"Transfer-Encoding: chunked", b"Content-Type: text/plain"], method=b"POST"),
    Row("any", [b"Content-Length: 100000"], method=b"POST"),
    Row("any", [b"Range: bytes=0-1", b"If-None-Match: *", b"Cache-Control: no-cache"]),
    Row("any", [b"Host: elsewhere"], {400, 429}),
    Row(
        "any",
        [b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + NONCE],
    ),
]

CORPUS = [*VALUES, *PATHS, *METHODS, *PROTOCOL]

# Those who are somebody else, and stay that: without these, one bucket for everybody would pass for a limit.
OTHERS = [
    Row("xff", [b"X-Forwarded-For: 192.0.2.2"], 200),
    Row("header", [b"X-Api-Key: Good"], 200),
    Row("header", [b"X-Api-Key: \xff"], 200, honest=[b"X-Api-Key: \xfe"]),
    Row("header", [b"X-Api-Key: " + LONG + b"a"], 200, honest=[b"X-Api-Key: " + LONG + b"b"]),
    Row("header", [], 200),
    Row("number", [], 200, target=b"/number/%(row)d%(row)d"),
    *(
        Row("two", [], 200, target=b"/two/" + other + b"-%(row)d", honest_target=b"/two/" + one + b"-%(row)d")
        for one, other in [(b"a:b/c", b"a/b:c"), (b"1:a/b", b"1/:ab"), (b"a%%00/b", b"a/%%00b"), (b"a/b", LONG + b"/b")]
    ),
]

NOWHERE = rb"""
    / // /nowhere/ /Nowhere /%6eowhere /now%2Fhere /./nowhere /nowhere;x=1 /nowhere?x=1 //number/1 /number/1/ /NUMBER/1
    /number/x /mounted/x /%FF%00
""".split()
NOWHERE.append(b"/" + LONG)


@pytest.fixture(scope="module")
def server(store_url: str) -> Iterator[Uvicorn]:
    """Each parser of HTTP that uvicorn has, each with another store."""
    options = ("--no-proxy-headers", "--http", "h11" if store_url == "memory://" else "httptools")
    with Uvicorn("tests.support.bypass_app:app", *options, env={"STORE": store_url}) as server:
        yield server


def status(server: Uvicorn, request: bytes) -> int:
    """The status that the server answers these very bytes with, on a connection of their own."""
    with socket.create_connection((HOST, server.port), timeout=TIMEOUT) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            line = answer.readline()
    assert line.startswith(b"HTTP/1.1 "), line
    return int(line.split()[1])


def written(target: bytes, headers: list[bytes], method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    """A request as bytes, which no client library has put in order."""
    return b"\r\n".join([b"%b %b %b" % (method, target, version), b"Host: x", *headers, b"", b""])


def a_client(number: int) -> list[bytes]:
    """The address of somebody who has not been seen before."""
    return [b"X-Forwarded-For: 198.18.%d.%d" % divmod(number, 256)]


def honest(row: Row) -> bytes:
    headers = HONEST.get(row.area, []) if row.honest is None else row.honest
    return written(filled(row, row.honest_target), [*unknown(row), *headers])


def trick(row: Row) -> bytes:
    return written(filled(row, row.target), [*unknown(row), *row.trick], row.method, row.version)


def unknown(row: Row) -> list[bytes]:
    """An address, where it does not matter for the rule: so that what leads elsewhere meets a full bucket there."""
    return [] if row.area in HONEST else a_client(row.number)


def filled(row: Row, target: bytes) -> bytes:
    return target % {b"area": row.area.encode(), b"row": row.number}


@pytest.mark.parametrize("row", CORPUS, ids=[row.id for row in CORPUS])
def test_no_trick_gets_past_a_limit(server: Uvicorn, row: Row) -> None:
    """After the one request that is allowed, the trick meets the same bucket, or no endpoint at all."""
    expected = row.status if isinstance(row.status, set) else {row.status}
    assert status(server, honest(row)) == 200
    assert status(server, trick(row)) in expected
    assert 200 not in expected


@pytest.mark.parametrize("row", OTHERS, ids=[row.id for row in OTHERS])
def test_somebody_else_has_a_bucket_of_their_own(server: Uvicorn, row: Row) -> None:
    """However alike two keys look: nobody is charged for another."""
    assert status(server, honest(row)) == 200
    assert status(server, trick(row)) == 200
    assert status(server, honest(row)) == 429
    assert status(server, trick(row)) == 429


@pytest.mark.parametrize("target", NOWHERE, ids=[f"{target[:40]!r}" for target in NOWHERE])
def test_what_is_nowhere_is_charged_too(server: Uvicorn, target: bytes) -> None:
    """Paths can be made up without end, and all that no rule knows share the client's own bucket."""
    number = next(ROWS)
    client = a_client(number)
    assert status(server, written(b"/nowhere", client)) == 404
    assert status(server, written(target, client)) == 429


def test_of_two_requests_in_one_packet_one_passes(server: Uvicorn) -> None:
    """Pipelining gets nobody past a limit."""
    one = written(b"/any/pipelined", [])
    with socket.create_connection((HOST, server.port), timeout=TIMEOUT) as connection:
        connection.sendall(one + written(b"/any/pipelined", [b"Connection: close"]))
        with connection.makefile("rb") as answer:
            assert re.findall(rb"HTTP/1.1 (\d+)", answer.read()) == [b"200", b"429"]
