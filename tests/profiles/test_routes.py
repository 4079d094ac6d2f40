"""Which requests share a bucket, by their methods and paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit.profiles import discord
from asgi_ratelimit.profiles.definitions import LONGEST_SEGMENT

ID, OTHER = "41771983423143937", "41771983423143938"
TOKEN = "t" * 68


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("GET", f"/channels/{ID}/messages/{OTHER}", f"GET /channels/{ID}/messages/{{id}}"),
        ("get", f"/api/v10/guilds/{ID}/members/{OTHER}?limit=1", f"GET /api/v10/guilds/{ID}/members/{{id}}"),
        ("POST", f"/webhooks/{ID}/{TOKEN}", f"POST /webhooks/{ID}/{TOKEN}"),
        ("POST", f"/interactions/{ID}/{TOKEN}/callback", "POST /interactions/{id}/{any}/callback"),
        ("GET", f"/users/{ID}", "GET /users/{id}"),
        (
            "PUT",
            f"/channels/{ID}/messages/{OTHER}/reactions/%F0%9F%91%8D/@me",
            f"PUT /channels/{ID}/messages/{{id}}/reactions/{{any}}/@me",
        ),
        ("GET", "/", "GET /"),
    ],
)
def test_routes_of_discord(method: str, path: str, route: str) -> None:
    """Major parameters stay, other ids are alike, and the method counts."""
    assert discord.routes.route(method, path) == route


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        (f"/api/v10/channels/{ID}/messages/{OTHER}", f"channels/{ID}"),
        (f"/webhooks/{ID}/{TOKEN}/messages/{OTHER}", f"webhooks/{ID}/{TOKEN}"),
        (f"/guilds/{ID}/channels", f"guilds/{ID}"),
        (f"/users/{ID}", ""),
    ],
)
def test_major_parameters_of_discord(path: str, parameters: str) -> None:
    """With them, the bucket that an answer names is a bucket of its own."""
    assert discord.routes.major_parameters(path) == parameters


@given(st.text(max_size=10), st.text(max_size=3000))
def test_any_path_has_a_route(method: str, path: str) -> None:
    """... of bounded length."""
    assert len(discord.routes.route(method, path)) <= 3 * 10 + 2 + 3 * 2048 + LONGEST_SEGMENT
