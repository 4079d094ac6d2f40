"""Documents in Redis: their keys, times to live and rights, and what happens while it is out."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from asgi_ratelimit import RedisStore, StoreError, StoreTimeout, StoreUnavailable
from asgi_ratelimit.stores.base import Documents
from tests.support.proxy import listening
from tests.support.redis_cluster import asked
from tests.support.redis_server import RedisServer
from tests.support.server import HOST

pytestmark = pytest.mark.anyio


async def test_keys_and_times_to_live(redis_server: RedisServer, redis_url: str) -> None:
    """A key for each name, which lives as long as the document, or as the latest of its parts says."""
    store = RedisStore(redis_url, prefix="shop", timeout=30)
    shared = store.documents
    await shared.write("a b", b"1")
    await shared.write("short", b"1", seconds=10)
    await shared.write("replaced", b"1", seconds=10)
    await shared.replace("replaced", b"1", b"2")
    await shared.write_part("parts", "one", b"1", seconds=20)
    await shared.write_part("parts", "two", b"1", seconds=30)
    await store.aclose()
    names = {b"a%20b", b"short", b"replaced", b"parts"}
    assert set(asked(redis_server, "KEYS", "*")) == {b"shop:documents:" + name for name in names}
    assert [asked(redis_server, "PTTL", f"shop:documents:{name}") for name in ("a%20b", "replaced")] == [-1, -1]
    assert 0 < asked(redis_server, "PTTL", "shop:documents:short") <= 10_000
    assert 20_000 < asked(redis_server, "PTTL", "shop:documents:parts") <= 30_000


READING = ("resetchannels", "~rl:*", "+get")
WRITING = (*READING, "+eval", "+set")
PARTS = (*WRITING, "+hset", "+hgetall", "+pexpire")


async def use(shared: Documents, rights: tuple[str, ...]) -> None:
    """Call what these rights are for."""
    await shared.read("name")
    if rights != READING:
        await shared.write("name", b"1", seconds=60)
        assert await shared.replace("name", b"1", b"2")
    if rights == PARTS:
        await shared.write_part("parts", "part", b"1", seconds=60)
        assert await shared.read_parts("parts") == {"part": b"1"}


@pytest.mark.parametrize("rights", [READING, WRITING, PARTS])
async def test_the_least_rights(server: RedisServer, rights: tuple[str, ...]) -> None:
    """They suffice, and without the last one a command is refused."""
    asked(server, "ACL", "SETUSER", "least", "on", ">secret", *rights)
    asked(server, "ACL", "SETUSER", "less", "on", ">secret", *rights[:-1])
    store = RedisStore(f"redis://least:secret@{HOST}:{server.port}", timeout=30)
    await use(store.documents, rights)
    await store.aclose()
    store = RedisStore(f"redis://less:secret@{HOST}:{server.port}", timeout=30)
    with pytest.raises(StoreError, match=r"no permissions|can't run this command"):
        await use(store.documents, rights)
    await store.aclose()


async def test_a_redis_that_is_out_and_comes_back(server: RedisServer) -> None:
    """Each call fails with an error without the password, until it is back."""
    store = RedisStore(f"redis://user:secret@{HOST}:{server.port}")
    with pytest.raises(StoreError, match="rejected the credentials") as wrong:
        await store.documents.read("name")
    assert "secret" not in str(wrong.value)
    store = RedisStore(server.url)
    await store.documents.write("name", b"1")
    server.stop()
    with pytest.raises(StoreUnavailable):
        await store.documents.read("name")
    server.start()
    assert await store.documents.read("name") is None
    await store.aclose()


async def test_a_redis_that_does_not_answer(server: RedisServer) -> None:
    """It has a second, however short the deadline of takes is; a caller that gives up disturbs no other."""
    patient, store = RedisStore(server.url, timeout=30), RedisStore(server.url, timeout=0.001)
    shared = store.documents
    await patient.documents.write("name", b"1")
    await patient.aclose()
    server.pause()
    impatient = asyncio.create_task(shared.read("name"))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(StoreTimeout, match=r"within 1\.0 s"):
        await shared.read("name")
    server.resume()
    content = None
    while content is None:
        with suppress(StoreTimeout):  # one second may not be enough for it on a busy machine
            content = await shared.read("name")
    assert content == b"1"
    await store.aclose()


@pytest.mark.parametrize("answer", [b":5\r\n", b"*1\r\n:5\r\n", b"*0\r\n"])
async def test_answers_that_make_no_sense(answer: bytes) -> None:
    """They are errors of the store."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            is_command = b"GET" in data or b"EVAL" in data
            writer.write(answer if is_command else b"+OK\r\n" * max(data.count(b"CLIENT"), 1))
        writer.close()

    async with listening(serve) as port:
        store = RedisStore(f"redis://{HOST}:{port}")
        for _ in range(2):
            with pytest.raises(StoreError, match="makes no sense"):
                await store.documents.read("name")
            with pytest.raises(StoreError, match="makes no sense"):
                await store.documents.replace("name", None, b"1")
        await store.aclose()


async def test_commands_at_once_take_turns_on_one_connection(server: RedisServer) -> None:
    """So that an app never has more than two: this one, and that of its takes."""
    shared = RedisStore(server.url, timeout=30).documents
    await asyncio.gather(*[shared.read(f"document {number}") for number in range(10)])
    assert len(asked(server, "CLIENT", "LIST").splitlines()) == 1 + 1  # and who asks for the list
    await shared.aclose()
