"""A FastAPI app with limits: ``uvicorn fastapi_app:app`` in this folder, with the extra ``fastapi``.

``ASGI_RATELIMIT_STORE`` is the URL of the store: ``memory://`` by default, or for example ``redis://localhost``.
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
    store=os.environ.get("ASGI_RATELIMIT_STORE", "memory://"),
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
    """A page that attackers try passwords on: a tighter limit in addition."""
    return "welcome"


search_limit = RateLimit("10/second burst 1", key=lambda request: "all", max_delay=2.0)


@app.get("/search", dependencies=[Depends(search_limit)], responses=limited_responses())
async def search() -> str:
    """A page with a slow backend: requests over its limit wait for their turn, for up to 2 seconds."""
    return "found"


@app.get("/health")
async def health() -> str:
    """The health check of a load balancer: no limit."""
    return "fine"


@api.get("/reports/{number}")
async def report(number: int) -> str:
    """A page of the included router: an additional limit for each API key."""
    return f"report {number}"


app.include_router(api)
