"""Clients other than httpx whose requests wait for their slots, as those of ``PacedTransport`` do.

Each needs its client library, which it imports at first use: ``pip install "asgi-ratelimit-pacer[requests]"``, or
``[aiohttp]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aiohttp_middleware import PacedMiddleware
    from .requests_adapter import PacedAdapter

__all__ = ["PacedAdapter", "PacedMiddleware"]

_MODULES = {"PacedAdapter": "requests_adapter", "PacedMiddleware": "aiohttp_middleware"}


def __getattr__(name: str) -> Any:
    """Import a client at first use, so that no client needs the library of another."""
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
