"""A FastAPI app with limits: ``uvicorn fastapi_app:app`` in this folder.

The buckets are where ``RATELIMIT_STORE`` says: ``memory://`` by default, or for example ``redis://localhost``.
"""

from __future__ import annotations

import os

from fastapi import APIRouter, Depends, FastAPI

from asgi_ratelimit import RateLimit, RateLimitMiddleware, Rule, client_ip, limited_responses
from asgi_ratelimit.keys import header

app = FastAPI()
app.add_middleware(
    RateLimitMiddleware,
    quota="1/second burst 5",
    key=client_ip(),
    rules=[Rule("/health", None)],
    store=os.environ.get("RATELIMIT_STORE", "memory://"),
)
api = APIRouter(
    prefix="/api",
    dependencies=[Depends(RateLimit("2 per 10 seconds", key=header("x-api-key"), name="api"))],
    responses=limited_responses(),
)


@app.get("/")
async def home() -> str:
    """A page under the default limit."""
    return "hello"


@app.post("/login", dependencies=[Depends(RateLimit("3/minute", name="login"))], responses=limited_responses())
async def login() -> str:
    """What guessers of passwords would call: a tighter limit on top."""
    return "welcome"


@app.get("/health")
async def health() -> str:
    """What a load balancer calls: no limit."""
    return "fine"


@api.get("/reports/{number}")
async def report(number: int) -> str:
    """A page of the included router: an own limit for each API key on top."""
    return f"report {number}"


app.include_router(api)
