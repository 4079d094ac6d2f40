"""Runs the example app on a real server, asks it more than its limits allow, and shows every answer.

``scripts/demo`` runs one process with its buckets in memory; ``scripts/demo --redis`` two that share a Redis.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from types import FrameType

import httpx

from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn

APP = "examples.demo_app:app"
BURST, RATE = 5, 1.0
"""The default limit of the example: units, and units a second."""
WORKERS = 2
ENOUGH = 50
"""Requests after which a limit should have shown, even on a slow machine."""


@dataclass(frozen=True, slots=True)
class Client:
    """One connection to the server, from an address of its own."""

    address: str
    http: httpx.Client

    @property
    def worker(self) -> str:
        """The process at the other end; asked for on a path without a limit."""
        return self.http.get("/health").headers["x-worker"]


class Timeline:
    """Prints answers as they come, and keeps what should have been seen and was not."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self._started = time.monotonic()
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def title(self, text: str) -> None:
        """Begin a part of the show."""
        say(f"\n{text}")

    def check(self, claim: str, holds: bool) -> None:
        """State what was to be seen here, and whether it was."""
        say(f"  {'->' if holds else '!! NOT SEEN:'} {claim}")
        if not holds:
            self.missing.append(claim)

    def ask(self, client: Client, call: str) -> httpx.Response:
        """Send a request such as ``"GET /"``, and print the answer as one line."""
        answer = client.http.request(*call.split())
        say(self._line(client, call, answer))
        return answer

    def ask_until_refused(self, clients: Sequence[Client], call: str) -> list[httpx.Response]:
        """Send the same request, the clients in turn, until one is refused."""
        answers: list[httpx.Response] = []
        for client in islice(cycle(clients), ENOUGH):
            answers.append(self.ask(client, call))
            if answers[-1].is_error:
                break
        return answers

    def _line(self, client: Client, call: str, answer: httpx.Response) -> str:
        headers = answer.headers
        status = f"{answer.status_code} {answer.reason_phrase}"
        parts = (
            f"{time.monotonic() - self._started:7.3f} s",
            f"{client.address:9}",
            f"worker {headers['x-worker']:7}",
            f"{call:11}",
            self._coloured(f"{status:21}", refused=answer.is_error),
            f"Retry-After: {headers['retry-after']:3}" if "retry-after" in headers else " " * 16,
            f"RateLimit: {headers['ratelimit']}" if "ratelimit" in headers else "",
        )
        return "  ".join(parts).rstrip()

    def _coloured(self, text: str, *, refused: bool) -> str:
        return f"\033[{31 if refused else 32}m{text}\033[0m" if self._colour else text


def main() -> int:
    """Run the demo; the exit code is 0 only if all was seen that should be."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Shows an example app's limits at work.")
    parser.add_argument("--redis", action="store_true", help="two workers that share their limits through Redis")
    with_redis = parser.parse_args().redis
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    try:
        return verdict(run_on_redis() if with_redis else run_in_memory())
    except KeyboardInterrupt:
        say("\nInterrupted; everything that was started is stopped.")
        return 130


def leave(number: int, frame: FrameType | None) -> None:
    """End in good order, so that no server stays behind."""
    sys.exit(128 + number)


def verdict(timeline: Timeline) -> int:
    """Say how it went, in one line."""
    if timeline.missing:
        say(f"\nFAILED: not seen: {'; '.join(timeline.missing)}.")
        return 1
    say("\nOK: everything was seen, and the servers are stopped.")
    return 0


def run_in_memory() -> Timeline:
    """One process, two clients."""
    with Uvicorn(APP) as server, connect(server, "127.0.0.1") as one, connect(server, "127.0.0.2") as two:
        say(f"The example app runs at {server.url}, with its buckets in memory.")
        timeline = Timeline()
        refusal = show_default_limit(timeline, one)
        show_own_bucket(timeline, two)
        show_rule(timeline, two)
        show_exemption(timeline, two)
        show_refusal(timeline, refusal)
        show_return(timeline, one, refusal)
        return timeline


def run_on_redis() -> Timeline:
    """Two processes, one Redis."""
    with RedisServer() as redis, ExitStack() as stack:
        app = Uvicorn(APP, "--workers", str(WORKERS), env={"RATELIMIT_STORE": redis.url})
        server = stack.enter_context(app)
        say(f"The example app runs at {server.url} in two processes, with its buckets in {redis.url}.")
        clients = one_client_for_each_worker(server, stack)
        timeline = Timeline()
        refusal = show_shared_limit(timeline, clients)
        show_refusal(timeline, refusal)
        show_return(timeline, clients[0], refusal)
        return timeline


def show_default_limit(timeline: Timeline, client: Client) -> httpx.Response:
    """The default limit, of which the last answer is the refusal."""
    timeline.title(f"A client may send {BURST} requests at once, and then one each second:")
    answers = timeline.ask_until_refused([client], "GET /")
    timeline.check(f"{BURST} passed, and then one was refused", len(answers) > BURST and is_refusal(answers[-1]))
    return answers[-1]


def show_own_bucket(timeline: Timeline, client: Client) -> None:
    """One client's refusal is nothing to another."""
    timeline.title("Another client has a bucket of its own:")
    timeline.check("it passed", timeline.ask(client, "GET /").is_success)


def show_rule(timeline: Timeline, client: Client) -> None:
    """A rule for one route, on top of the default limit."""
    timeline.title("A rule allows 3 logins a minute, on top of that:")
    answers = timeline.ask_until_refused([client], "POST /login")
    timeline.check("3 passed, and the fourth was refused", len(answers) == 4 and is_refusal(answers[-1]))


def show_exemption(timeline: Timeline, client: Client) -> None:
    """A route without a limit."""
    timeline.title("A path may be without any limit:")
    answers = [timeline.ask(client, "GET /health") for _ in range(3)]
    free = all(answer.is_success and "ratelimit" not in answer.headers for answer in answers)
    timeline.check("all passed, with no word about limits", free)


def show_refusal(timeline: Timeline, refusal: httpx.Response) -> None:
    """The body of a refusal."""
    timeline.title("A refusal says why, for programs to read:")
    say(f"  {refusal.headers['content-type']}")
    say(f"  {refusal.text}")
    timeline.check("it is a problem of the type quota-exceeded", "#quota-exceeded" in refusal.text)


def show_return(timeline: Timeline, client: Client, refusal: httpx.Response) -> None:
    """After the time that the refusal names, the client passes."""
    seconds = int(refusal.headers.get("retry-after", 1))
    timeline.title(f"After the {seconds} s of Retry-After:")
    time.sleep(seconds)
    timeline.check("the refused client passed again", timeline.ask(client, "GET /").is_success)


def show_shared_limit(timeline: Timeline, clients: Sequence[Client]) -> httpx.Response:
    """One client's requests reach both workers, and are counted together."""
    timeline.title(f"One client may send {BURST} requests at once, whichever worker answers:")
    began = time.monotonic()
    answers = timeline.ask_until_refused(clients, "GET /")
    other = clients[len(answers) % len(clients)]
    answers += timeline.ask_until_refused([other], "GET /")
    most = BURST + RATE * (time.monotonic() - began)
    passed = [answer for answer in answers if answer.is_success]
    timeline.check("both let requests pass", len({answer.headers["x-worker"] for answer in passed}) == WORKERS)
    timeline.check(f"together they let {len(passed)} pass, and then both refused", BURST <= len(passed) <= most)
    return answers[-1]


def is_refusal(answer: httpx.Response) -> bool:
    """Whether this is a 429 that says when to come back."""
    return answer.status_code == 429 and "retry-after" in answer.headers


@contextmanager
def connect(server: Uvicorn, address: str) -> Iterator[Client]:
    """A client at a loopback address.

    Where the system has no such address, the client is one behind a proxy: uvicorn believes those on its own machine.
    """
    there = has_address(address)
    transport = httpx.HTTPTransport(local_address=address if there else None)
    headers = {} if there else {"x-forwarded-for": address}
    with httpx.Client(base_url=server.url, transport=transport, headers=headers, trust_env=False) as http:
        yield Client(address, http)


def has_address(address: str) -> bool:
    """Whether connections can be made from this address: all of 127.0.0.0/8 on Linux, one of them elsewhere."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def one_client_for_each_worker(server: Uvicorn, stack: ExitStack) -> list[Client]:
    """Connections of one address, one to each worker: they share out connections as these come."""
    clients: dict[str, Client] = {}
    deadline = time.monotonic() + 20
    while len(clients) < WORKERS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {len(clients)} of {WORKERS} workers answered")
        client = stack.enter_context(connect(server, "127.0.0.1"))
        clients.setdefault(client.worker, client)
        time.sleep(0.01)
    return list(clients.values())


def say(text: str) -> None:
    """Print at once, into a pipe as well."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
