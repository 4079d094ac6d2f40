"""Profiles are data: complete, checked, and short enough to write one's own. Which requests share a bucket."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_ratelimit import ConfigurationError, profiles
from asgi_ratelimit.headers import ServerLimit, parse
from asgi_ratelimit.profiles import PROFILES, LimitHeaders, Profile, Refusal, Routes, discord
from asgi_ratelimit.profiles.definitions import LONGEST_SEGMENT
from tests.headers.answers import EXAMPLES


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_documented_and_tested(name: str) -> None:
    """It says where its API documents its headers, is exported by its name, and has an example."""
    assert PROFILES[name].name == name
    assert PROFILES[name].source.startswith("https://")
    assert getattr(profiles, name) is PROFILES[name]
    assert name in profiles.__all__
    assert name in {example.profile for example in EXAMPLES.values()}


def test_a_profile_takes_ten_lines() -> None:
    """An API with names of its own, in any case, minutes, a header for the bucket, and refusals by 420."""
    calm = Profile(
        name="calm",
        limits=(
            LimitHeaders(
                limit="X-Calls-Allowed", used="x-calls-made", reset="x-calls-until", window=60.0, bucket="x-calls-of"
            ),
        ),
        refusals=(Refusal((420,), (("body:error", "Calm down [?]*"),), wait=5.0),),
    )
    headers = {"x-calls-allowed": "10", "x-calls-made": "4", "x-calls-until": "1m30s", "x-calls-of": "search"}
    limit = ServerLimit(limit=10, remaining=6, window=60, reset_after=90, bucket="search")
    result = parse(420, headers, profile=calm, body={"error": "calm down [?]!"})
    assert (result.limits, result.is_throttled, result.retry_after) == ((limit,), True, 5.0)
    assert not parse(429, headers, profile=calm).is_throttled


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LimitHeaders(limit=["x-limit"]), 'limit must be a source or several, not .*: limit="x-'),
        (lambda: LimitHeaders(limit="x", reset_unit="minutes"), "reset_unit must be one of .*not 'minutes': "),
        (lambda: Refusal(429), r"statuses must be a tuple, not 429: statuses=\(429,\)"),
        (lambda: Profile(name="p", limits=LimitHeaders(limit="x")), "limits must be a tuple, not LimitHeaders"),
        (lambda: Profile(name="p", drafts="ratelimit"), r"drafts must be a tuple, not .*: drafts=\('ratelimit',\)"),
        (lambda: Refusal((429,), ("via", "*")), r"signs must be of pairs, not .*: signs=\(\('via', '\*'\),\)"),
        (lambda: LimitHeaders(exhausted="via"), r"exhausted must be of pairs, not .*: exhausted=\('via', '\*'\)"),
        (lambda: Routes(majors=("a", 1)), r"majors must be of pairs, not .*: majors=\(\('a', 1\),\)"),
    ],
)
def test_what_is_no_profile_is_refused(build: Callable[[], object], message: str) -> None:
    """When it is built, with the wrong value and a right example."""
    with pytest.raises(ConfigurationError, match=message):
        build()


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
