"""What all callers of one store share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from threading import Thread

from asgi_ratelimit.waiting.queue_registry import OpenBlocks


class Forgotten:
    """The body of an answer that nobody closes: the garbage collector does, and so ends its block."""

    def __init__(self, blocks: OpenBlocks) -> None:
        self.blocks = blocks
        self.cycle = self

    def __del__(self) -> None:
        self.blocks.end(["body"])


def test_the_garbage_collector_may_end_a_block_while_another_begins() -> None:
    """In the same thread, which must not wait for itself."""
    blocks = OpenBlocks()
    blocks.begin(["body"])
    Forgotten(blocks)

    def buckets() -> Iterator[str]:
        gc.collect()
        yield "another"

    thread = Thread(target=blocks.begin, args=[buckets()], daemon=True)
    thread.start()
    thread.join(15)
    assert not thread.is_alive()
    assert (blocks.on_any(["body"]), blocks.on_any(["another"])) == (False, True)
