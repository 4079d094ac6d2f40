"""The OpenAPI description of the answers of limited routes."""

from __future__ import annotations

from typing import Any


def limited_responses() -> dict[int | str, dict[str, Any]]:
    """The answers of a limited route for OpenAPI: pass ``responses=limited_responses()`` to a route, router or app."""
    integer, text = {"schema": {"type": "integer"}}, {"schema": {"type": "string"}}
    return {
        429: {
            "description": "Too many requests: a quota has been exceeded",
            "headers": {
                "Retry-After": {"description": "Seconds to wait", **integer},
                "RateLimit-Policy": {"description": "The quotas, by name", **text},
                "RateLimit": {"description": "What is left of them", **text},
            },
            "content": {"application/problem+json": {"schema": _PROBLEM}},
        }
    }


_PROBLEM = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}
