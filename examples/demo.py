"""Runs the example app on a real server, sends it more requests than its limits allow, and prints every answer.

``scripts/demo`` runs one process with its buckets in memory. ``scripts/demo --redis`` runs two that share a Redis.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice

import httpx

from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn

APP = "examples.demo_app:app"
BURST, RATE = 5, 1.0
"""The default limit of the example: its burst in units, and its rate in units per second."""
WORKERS = 2
MAX_REQUESTS = 50
"""The number of requests after which a limit must have refused one, even on a slow machine."""


@dataclass(frozen=True, slots=True)
class Client:
    """One connection to the server, from an address of its own."""

    address: str
    http: httpx.Client

    @property
    def worker(self) -> str:
        """The process at the other end, from a path without a limit."""
        return self.http.get("/health").headers["x-worker"]


class Timeline:
    """Prints answers as they arrive, and records each expected fact that was not seen."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self._started = time.monotonic()

    def title(self, text: str) -> None:
        """Print the title of the next part."""
        say(f"\n{text}")

    def check(self, fact: str, holds: bool) -> None:
        """Print a fact that should be seen here, and whether it was."""
        say(f"  {'->' if holds else '!! NOT SEEN:'} {fact}")
        if not holds:
            self.missing.append(fact)

    def send(self, client: Client, call: str) -> httpx.Response:
        """Send a request such as ``"GET /"``, and print the answer on one line."""
        answer = client.http.request(*call.split())
        say(self._row(client, call, answer))
        return answer

    def send_until_refused(self, clients: Sequence[Client], call: str) -> list[httpx.Response]:
        """Send the same request from each client in rotation, until one is refused."""
        answers: list[httpx.Response] = []
        for client in islice(cycle(clients), MAX_REQUESTS):
            answers.append(self.send(client, call))
            if answers[-1].is_error:
                break
        return answers

    def _row(self, client: Client, call: str, answer: httpx.Response) -> str:
        headers = answer.headers
        status = f"{answer.status_code} {answer.reason_phrase}"
        parts = (
            f"{time.monotonic() - self._started:7.3f} s",
            f"{client.address:9}",
            f"worker {headers['x-worker']:7}",
            f"{call:11}",
            f"{status:21}",
            f"Retry-After: {headers['retry-after']:3}" if "retry-after" in headers else " " * 16,
            f"RateLimit: {headers['ratelimit']}" if "ratelimit" in headers else "",
        )
        return "  ".join(parts).rstrip()


def main() -> int:
    """Run the demo; the exit code is 0 only if every expected fact was seen."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Runs an example app and shows its limits.")
    parser.add_argument("--redis", action="store_true", help="two workers that share their limits through Redis")
    with_redis = parser.parse_args().redis
    try:
        return verdict(run_on_redis() if with_redis else run_in_memory())
    except KeyboardInterrupt:
        say("\nInterrupted; the servers are stopped.")
        return 130


def verdict(timeline: Timeline) -> int:
    """Print the result on one line, and return the exit code."""
    if timeline.missing:
        say(f"\nFAILED: not seen: {'; '.join(timeline.missing)}.")
        return 1
    say("\nOK: every step behaved as described, and the servers are stopped.")
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
        app = Uvicorn(APP, "--workers", str(WORKERS), env={"ASGI_RATELIMIT_STORE": redis.url})
        server = stack.enter_context(app)
        say(f"The example app runs at {server.url} in two processes, with its buckets in {redis.url}.")
        clients = one_client_for_each_worker(server, stack)
        timeline = Timeline()
        refusal = show_shared_limit(timeline, clients)
        show_refusal(timeline, refusal)
        show_return(timeline, clients[0], refusal)
        return timeline


def show_default_limit(timeline: Timeline, client: Client) -> httpx.Response:
    """Show the default limit; returns the refusal."""
    timeline.title(f"A client may send {BURST} requests at once, and then one per second:")
    answers = timeline.send_until_refused([client], "GET /")
    timeline.check(f"{BURST} passed, and then one was refused", len(answers) > BURST and is_refusal(answers[-1]))
    return answers[-1]


def show_own_bucket(timeline: Timeline, client: Client) -> None:
    """Show that the refusal of one client does not affect another."""
    timeline.title("Another client has a bucket of its own:")
    timeline.check("it passed", timeline.send(client, "GET /").is_success)


def show_rule(timeline: Timeline, client: Client) -> None:
    """Show a rule for one route, in addition to the default limit."""
    timeline.title("A rule also allows only 3 logins per minute:")
    answers = timeline.send_until_refused([client], "POST /login")
    timeline.check("3 passed, and the fourth was refused", len(answers) == 4 and is_refusal(answers[-1]))


def show_exemption(timeline: Timeline, client: Client) -> None:
    """Show a route without a limit."""
    timeline.title("A rule may exempt a path:")
    answers = [timeline.send(client, "GET /health") for _ in range(3)]
    free = all(answer.is_success and "ratelimit" not in answer.headers for answer in answers)
    timeline.check("all passed, without rate-limit headers", free)


def show_refusal(timeline: Timeline, refusal: httpx.Response) -> None:
    """Show the body of a refusal."""
    timeline.title("The body of a refusal is machine-readable:")
    say(f"  {refusal.headers['content-type']}")
    say(f"  {refusal.text}")
    timeline.check("its problem type is quota-exceeded", "#quota-exceeded" in refusal.text)


def show_return(timeline: Timeline, client: Client, refusal: httpx.Response) -> None:
    """Show that the client passes after the refusal's Retry-After."""
    seconds = int(refusal.headers.get("retry-after", 1))
    timeline.title(f"After the {seconds} s of Retry-After:")
    time.sleep(seconds)
    timeline.check("the refused client passed again", timeline.send(client, "GET /").is_success)


def show_shared_limit(timeline: Timeline, clients: Sequence[Client]) -> httpx.Response:
    """Show that requests of one client to both workers are counted together."""
    timeline.title(f"One client may send {BURST} requests at once, whichever worker answers:")
    began = time.monotonic()
    answers = timeline.send_until_refused(clients, "GET /")
    other = clients[len(answers) % len(clients)]
    answers += timeline.send_until_refused([other], "GET /")
    most = BURST + RATE * (time.monotonic() - began)
    passed = [answer for answer in answers if answer.is_success]
    timeline.check("both workers admitted requests", len({answer.headers["x-worker"] for answer in passed}) == WORKERS)
    timeline.check(f"together they admitted {len(passed)}, and then both refused", BURST <= len(passed) <= most)
    return answers[-1]


def is_refusal(answer: httpx.Response) -> bool:
    """Whether an answer is a 429 with ``Retry-After``."""
    return answer.status_code == 429 and "retry-after" in answer.headers


@contextmanager
def connect(server: Uvicorn, address: str) -> Iterator[Client]:
    """A client at an address, which a header names: uvicorn trusts proxies on its own machine."""
    with httpx.Client(base_url=server.url, headers={"x-forwarded-for": address}, trust_env=False) as http:
        yield Client(address, http)


def one_client_for_each_worker(server: Uvicorn, stack: ExitStack) -> list[Client]:
    """Connections from one address, one to each worker; the system distributes new connections among them."""
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
    """Print and flush, so that redirected output arrives at once as well."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
