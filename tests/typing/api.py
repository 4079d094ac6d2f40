"""Public usage as users write it: checked by mypy in strict mode, never run."""

from __future__ import annotations

from typing import Annotated, assert_type

import aiohttp
import httpx
import httpx2
import requests
from fastapi import Depends, FastAPI, Request
from redis.asyncio import Redis
from requests.adapters import HTTPAdapter
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from asgi_ratelimit import (
    AdaptiveTransport,
    Charge,
    Decision,
    HeaderOptions,
    Limiter,
    Limits,
    MemoryStore,
    PacedTransport,
    PaceTimeout,
    Penalty,
    Quota,
    QuotaError,
    QuotaState,
    RateLimit,
    RateLimited,
    RateLimitError,
    RateLimitMiddleware,
    RedisStore,
    Rule,
    Store,
    SyncLimiter,
    Take,
    Ticket,
    TokenBucket,
    client_ip,
    explain,
    limited_responses,
    limits,
    open_store,
    pace,
    parse_quotas,
    profiles,
)
from asgi_ratelimit.clients import PacedAdapter, PacedMiddleware
from asgi_ratelimit.headers import ServerLimits, parse
from asgi_ratelimit.hooks import Event, Failure, Hook, failures, log_refusals
from asgi_ratelimit.keys import combine, cookie, first_of, header, path_param, state, user
from asgi_ratelimit.metrics import opentelemetry, prometheus
from asgi_ratelimit.testing import SteppedClock, SteppedLimiter
from asgi_ratelimit.tools import Covered, coverage


def quotas() -> None:
    """Quotas are values, or written as text."""
    quota: Quota = TokenBucket(100, 60.0, burst=20, burst_allowance_factor=0.5, name="reads")
    assert_type(TokenBucket(10).burst, float)
    assert_type(quota.name, str)
    assert_type(parse_quotas("10/s; 1000/hour", default_burst=1), tuple[Quota, ...])
    try:
        TokenBucket(limit=0)
    except QuotaError as error:
        root: RateLimitError = error
        value: ValueError = error
        print(root, value)


def stores() -> list[Store]:
    """All stores are of one protocol."""
    memory: Store = MemoryStore(max_keys=1_000, clock=SteppedClock(1_800_000_000))
    redis: Store = RedisStore("redis://localhost", prefix="shop", timeout=0.1, on_error="deny", replicas=4)
    of_a_client: Store = RedisStore(Redis(host="localhost"))
    assert_type(open_store("redis://localhost", on_error="allow"), Store)
    return [memory, redis, of_a_client]


async def limiters() -> None:
    """The verbs of a limiter."""
    async with Limiter("10/s burst 20", store="memory://", name="api") as limiter:
        assert_type(limiter, Limiter)
        assert_type(await limiter.rate_limit("alice"), Decision)
        assert_type(await limiter.rate_limit(b"alice", 2.5, operation="message 5"), Decision)
        assert_type(await limiter.pace("alice", cost=3, max_delay=1.5, operation="message 5"), Decision)
        assert_type(await limiter.acquire("alice", 3, max_delay=1.5, operation="message 5"), Decision)
        assert_type(await limiter.peek("alice"), Decision)
        assert_type(await limiter.reset("alice"), None)
        charges = [Charge(quota, "alice") for quota in limiter.quotas]
        assert_type(await limiter.take(charges, max_wait=2), Decision)


def synchronous() -> None:
    """The same verbs, without ``await``."""
    with SyncLimiter(["10/s", TokenBucket(1000, 3600)], store=MemoryStore()) as limiter:
        assert_type(limiter, SyncLimiter)
        assert_type(limiter.rate_limit("alice", 2), Decision)
        assert_type(limiter.pace("alice", max_delay=None), Decision)
        assert_type(limiter.acquire("alice"), Decision)


def decisions(decision: Decision, error: PaceTimeout) -> None:
    """What a decision says."""
    assert_type(decision.allowed, bool)
    assert_type(decision.delay, float)
    assert_type(decision.retry_after, float)
    assert_type(decision.remaining, int)
    assert_type(decision.states, tuple[QuotaState, ...])
    assert_type(decision.take, Take)
    assert_type(error.decision, Decision)
    timeout: TimeoutError = error
    print(timeout)


def by_path(connection: HTTPConnection) -> str | None:
    """A key of one's own."""
    return connection.url.path


def by_request(request: Request) -> str:
    """A key of one's own, as FastAPI's users write it."""
    return request.method


def by_number(request: Request) -> int | None:
    return int(request.query_params["id"])


def plan(request: Request) -> str:
    return "10/minute" if request.method == "GET" else "1/minute"


def pages(request: Request) -> float:
    return max(1.0, float(request.query_params.get("pages", 1)))


def is_internal(request: Request) -> bool:
    return request.url.hostname == "localhost"


def shorter(request: Request, decision: Decision) -> Response:
    return PlainTextResponse(f"{request.method}: {decision.retry_after}", 429)


def user_id() -> int:
    return 7


def with_functions_of_requests(app: ASGIApp) -> list[object]:
    """Functions may be annotated with what they are called with."""
    rule = Rule("/", plan, key=by_request, cost=pages)
    count: list[Failure] = []
    hooks = [failures(count.append)]
    return [
        RateLimitMiddleware(app, plan, key=by_number, cost=pages, rules=[rule], allow=is_internal, hooks=hooks),
        RateLimitMiddleware(app, "1/s", headers="both", on_limited=shorter, deny=is_internal),
        RateLimitMiddleware(app, "1/s", max_delay=2.0, max_waiting=100),
        RateLimitMiddleware(app, "1/s", headers="draft-11"),  # type: ignore[arg-type]
        RateLimit(plan, key=by_request, cost=pages),
        RateLimit("5/minute", key=Depends(user_id)),
        RateLimit("5/minute", max_delay=2.0),
        first_of(by_request, by_number, combine(user(), by_request)),
    ]


async def by_user(connection: HTTPConnection) -> bytes | None:
    """A key that takes a moment."""
    return connection.headers.get("authorization", "").encode() or None


def tier(connection: HTTPConnection) -> Quota | None:
    return TokenBucket(10) if connection.user.is_authenticated else None


async def later(connection: HTTPConnection) -> str:
    return "10/minute"


async def price(connection: HTTPConnection) -> float:
    return 2.5


async def sorry(connection: HTTPConnection, decision: Decision) -> Response | None:
    return PlainTextResponse(f"{decision.retry_after}") if connection.url.path != "/" else None


async def kilobytes(status: int, headers: Headers, sent: int) -> float | None:
    return sent / 1000 if "x-free" not in headers else None


async def endpoint(request: Request, own: Annotated[Limits, Depends(limits)]) -> None:
    """The limits of a request inside its endpoint."""
    await limits(request).charge(5, name="uploads")
    assert_type(await limits(request).charge(5, required=False), bool)
    await own.refund(2)
    await own.settle(0, name="uploads")
    assert_type(own.decisions, tuple[Decision, ...])
    assert_type(own.decision, Decision | None)


async def is_bot(connection: HTTPConnection) -> bool:
    return "bot" in connection.headers.get("user-agent", "")


def told(event: Event) -> None:
    assert_type(event.decision, Decision)
    assert_type(event.rule, str)
    assert_type(event.route, str | None)
    assert_type(event.latency, float | None)


async def sent(event: Event) -> None:
    """An asynchronous hook."""


EXPORTERS: list[Hook] = [prometheus(), opentelemetry(), log_refusals(level=20, keys=True, every=60), told, sent]


RULES = [
    Rule("/login", "3/minute", methods=["POST"], key=client_ip()),
    Rule("/api/{path:path}", ("10/s", TokenBucket(1000, 3600)), key=by_user, cost=2.5, name="api", only=True),
    Rule("/users/{id}", "5/s", key=combine(client_ip(), path_param("id"), by_user, by_path)),
    Rule("/carts", "5/s", key=first_of(user("id"), cookie("cart", secret=b"hush"), state("tenant"))),
    Rule("/doors", "3/minute", penalty=Penalty("10 minutes", after=5, within=3600, growth=2, longest="1 day")),
    Rule("/print", tier, cost=lambda connection: len(connection.url.path), shadow=True, on_error="deny"),
    Rule("/upload", later, cost=price, settle=lambda status, headers: 0 if status < 400 else 1),
    Rule("/files", "10/s", settle=kilobytes),
    Rule("/chat", None, messages="20/s"),
    Rule("/search", "2/s", max_delay=2.5),
]


def apps(inner: ASGIApp) -> list[ASGIApp]:
    """The middleware, in all the ways in which it is put around an app."""
    starlette = Starlette(middleware=[Middleware(RateLimitMiddleware, "10/s", key=client_ip(["10.0.0.0/8"]))])
    starlette.add_middleware(RateLimitMiddleware, quota="100/minute", rules=RULES, store=MemoryStore())
    fastapi = FastAPI()
    fastapi.add_middleware(RateLimitMiddleware, quota=None, key=header("x-api-key"), rules=RULES, cost=1)
    fastapi.add_middleware(
        RateLimitMiddleware, tier, on_limited=sorry, headers="both", on_error="allow", hooks=EXPORTERS
    )
    proxied = client_ip("unix", 56, forwarded_header="forwarded")
    fastapi.add_middleware(RateLimitMiddleware, key=proxied, allow=proxied.within("10.0.0.0/8"), deny=is_bot)
    options = HeaderOptions("legacy", near_limit=0.2, spread=0.1, partition_secret="secret")
    fastapi.add_middleware(RateLimitMiddleware, "1/s", headers=options)
    assert_type(coverage(fastapi), list[Covered])
    return [starlette, fastapi, RateLimitMiddleware(inner, "5/minute", store="redis://localhost", name="app")]


def dependencies(store: Store) -> FastAPI:
    """Limits next to the routes of FastAPI."""
    app = FastAPI(dependencies=[Depends(RateLimit("5/minute"))], responses=limited_responses())
    named = RateLimit(tier, key=by_user, cost=price, name="reports", store=store, on_error="deny")
    own = RateLimit("5/minute", on_limited=lambda connection, decision: {"wait": decision.retry_after})

    assert_type(RateLimit.together(named, own, RateLimit("5/s", key=client_ip("cloudflare"))), RateLimit)

    @app.get("/", dependencies=[Depends(named)])
    async def report(decision: Annotated[Decision | None, Depends(named)]) -> None:
        assert_type(decision, Decision | None)

    @app.exception_handler(RateLimited)
    def limited(request: Request, error: RateLimited) -> Response:
        assert_type(error.decision, Decision | None)
        return PlainTextResponse(error.detail, error.status_code)

    return app


@pace("10/s", key=lambda account: account, cost={"per-second": 2}, max_delay=5, margin=0.05, priority=1, hooks=[print])
async def fetch(account: str, page: int = 1) -> bytes:
    """A paced coroutine function keeps its type."""
    return f"{account}/{page}".encode()


class Client:
    """Paced methods keep theirs."""

    @pace(TokenBucket(10), store=MemoryStore(), name="client", cost=lambda size: size)
    def send(self, size: int) -> str:
        """With or without ``async``."""
        return str(size)


async def paced(client: Client) -> None:
    """What they return is what they returned before."""
    assert_type(await fetch("alice", page=2), bytes)
    assert_type(client.send(5), str)
    await fetch(5)  # type: ignore[arg-type]
    client.send("5")  # type: ignore[arg-type]
    SteppedClock().run(fetch("alice"))


def transports() -> None:
    """One transport, in clients of both packages and of both kinds."""
    transport = PacedTransport(httpx.HTTPTransport(), "10/s", key=lambda request: "all", concurrency=5, retries=2)
    httpx.Client(transport=transport)
    httpx.AsyncClient(mounts={"https://": transport})
    httpx2.Client(transport=transport)
    httpx2.AsyncClient(transport=transport)
    PacedTransport(
        httpx.HTTPTransport(),
        "10/s; 100/minute",
        key={"per-second": lambda request: "one", "per-minute": "all"},
        cost={"per-second": 1, "per-minute": lambda request: 2.5},
        settle=lambda answer: {"per-minute": 3},
        oversize="raise",
        margin=0.05,
        hooks=[print],
    )


def adaptive_transports() -> None:
    """They learn limits, and show what they have learned."""
    transport = AdaptiveTransport(httpx.HTTPTransport(), profile="github", quota="50/s", retries=2, max_delay=60)
    httpx.Client(transport=transport)
    httpx2.AsyncClient(transport=transport)
    for bucket in transport.state():
        assert_type(bucket.remaining, float | None)
        assert_type(bucket.waiting, int)
    AdaptiveTransport(httpx.HTTPTransport(), profile=profiles.Profile(name="mine"), store="memory://")
    AdaptiveTransport(httpx.HTTPTransport(), retries="2")  # type: ignore[arg-type]


async def other_clients(session: requests.Session) -> None:
    """The same for requests and aiohttp, with ready functions for language models."""
    quotas = [TokenBucket(500, 60, name="requests"), TokenBucket(200_000, 60, name="tokens")]
    cost = profiles.LearnedEstimate(profiles.openai_estimate, by=profiles.model, weight=0.2)
    session.mount(
        "https://",
        PacedAdapter(HTTPAdapter(), quotas, key=profiles.model, cost=cost, settle=profiles.openai_usage, retries=1),
    )
    async with PacedMiddleware(
        "10/s", cost=profiles.anthropic_estimate, settle=profiles.anthropic_usage, name="api"
    ) as paced:
        aiohttp.ClientSession(middlewares=[paced])


def answers(answer: httpx.Response, other: httpx2.Response, pairs: list[tuple[bytes, bytes]]) -> None:
    """The headers of any client, with profiles by name and with one's own."""
    own = profiles.Profile(
        name="own", limits=(profiles.LimitHeaders(remaining="x-left", window=60),), refusals=(profiles.Refusal((420,)),)
    )
    assert_type(parse(answer.status_code, answer.headers, profile="github", body=answer.json()), ServerLimits)
    assert_type(parse(other.status_code, other.headers, profile=own, now=1.8e9, max_delay=60), ServerLimits)
    assert_type(parse(200, pairs, profile=profiles.discord).limits[0].wait(5), float | None)
    assert_type(profiles.discord.routes.route("GET", "/users/@me"), str)
    profiles.LimitHeaders(remaining="x-left", reset_means="end")  # type: ignore[arg-type]


async def own_tests() -> None:
    """What users' own tests are written with."""
    limiter = SteppedLimiter("3/minute", name="logins")
    assert_type(await limiter.rate_limit("alice"), Decision)
    limiter.clock.advance(20)
    assert_type(limiter.clock.now, float)
    plain: Limiter = limiter
    print(plain, explain(limiter.quotas))


async def jobs(limiter: Limiter, plain: SyncLimiter) -> None:
    """Tickets, and costs that are known afterwards."""
    ticket = await limiter.reserve("guild", {"requests": 1})
    assert_type(ticket, Ticket)
    assert_type(Ticket.parse(str(ticket)), Ticket)
    assert_type(await limiter.redeem(str(ticket), late_tolerance=1), Decision)
    assert_type(await limiter.waiting({"guild": "a", "all": ""}), float)
    assert_type(await limiter.eta({"guild": "a", "all": ""}, cost=2), float)
    assert_type(plain.redeem(plain.reserve("guild")), Decision)
    assert_type(plain.reserve("guild", operation="id").operation, str | None)
    async with limiter.hold("guild", max_delay=5) as held:
        assert_type(held, Decision)
    await limiter.cancel(ticket)
    async with limiter.spend("account", {"requests": 1, "tokens": 1800}, max_delay=5, operation="id") as spent:
        assert_type(spent.decision, Decision)
        spent.settle(2)
        spent.settle(tokens=1234)
    with plain.spend("account", 5) as all_of_it:
        all_of_it.settle({"per-minute": 3})
