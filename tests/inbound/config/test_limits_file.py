"""What a file of limits says is what the arguments would say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from asgi_ratelimit import MemoryStore, Penalty, RateLimitMiddleware, Rule, client_ip
from asgi_ratelimit.keys import cookie, header, path_param, state, user
from asgi_ratelimit.quota_text import as_text
from tests.inbound.config import limits_of
from tests.inbound.config.limits_of import HERE, limited

pytestmark = pytest.mark.anyio

LIMITS = f"""
name = "api"
quota = "100/minute; 1000/hour"
key = "{HERE}:key_of"
cost = 2
headers = "both"
on_error = "deny"
max_delay = 1
max_waiting = 5
penalty = {{ block_for = "10 minutes", after = 5, within = 60, growth = 2, longest = "1 day" }}

[[rules]]
path = "/all/{{id}}"
quota = ["5/minute", "50/day rolling"]
name = "all"
methods = ["GET", "POST"]
key = "header:X-Key"
cost = "{HERE}:cost_of"
only = true
settle = "{HERE}:actual_cost"
on_limited = "{HERE}:answer"
messages = "20/s"
on_error = "allow"
max_delay = 2.5
[rules.penalty]
block_for = 60

[[rules]]
path = "/shadow"
quota = "1/s"
shadow = true

[[rules]]
path = "/health"
exempt = true

[[rules]]
path = "/socket"
exempt = true
messages = "1/s"
"""


def test_every_option(tmp_path: Path) -> None:
    """Each of them, of the middleware and of a rule."""
    middleware = limited(tmp_path / "limits.toml", LIMITS)
    own, everything, shadow, health, socket = middleware.rule_table.declared
    assert (own.name, own.key, own.cost, own.on_error, own.max_delay) == ("api", limits_of.key_of, 2, "deny", 1.0)
    assert [quota.limit for quota in own.quota] == [100, 1000]  # type: ignore[union-attr]
    assert own.penalty == Penalty("10 minutes", after=5, within=60, growth=2, longest="1 day")
    rule = everything.source
    assert rule is not None
    assert repr(rule.key) == repr(header("X-Key"))
    assert rule == Rule(
        "/all/{id}",
        rule.quota,
        name="all",
        methods=("GET", "POST"),
        key=rule.key,
        cost=limits_of.cost_of,
        only=True,
        settle=limits_of.actual_cost,
        on_limited=limits_of.answer,
        messages="20/s",
        on_error="allow",
        max_delay=2.5,
        penalty=Penalty(60),
    )
    assert [quota.limit for quota in everything.quota] == [5, 50]  # type: ignore[union-attr]
    assert shadow.source == Rule("/shadow", "1/s", shadow=True)
    assert health.source == Rule("/health", None)
    assert socket.source == Rule("/socket", None, messages="1/s")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("client_ip", client_ip()),
        ("user", user()),
        ("user:id", user("id")),
        ("header:X-Api-Key", header("X-Api-Key")),
        ("cookie:session", cookie("session")),
        ("path_param:id", path_param("id")),
        ("state:tenant", state("tenant")),
    ],
)
def test_every_form_of_a_key(tmp_path: Path, text: str, key: Any) -> None:
    """As the functions of ``asgi_ratelimit.keys``."""
    rules = f'[[rules]]\npath = "/{{id}}"\nquota = "1/s"\nkey = "{text}"'
    (rule,) = limited(tmp_path / "limits.toml", rules).rule_table.rules
    assert rule.source is not None
    assert repr(rule.source.key) == repr(key)


def test_trusted_proxies(tmp_path: Path) -> None:
    """They count for the default key as well."""
    text = '[client_ip]\ntrusted_proxies = ["10.0.0.0/8"]\nipv6_prefix = 48\n'
    for key in ("", 'key = "client_ip"\n'):
        (own,) = limited(tmp_path / "limits.toml", f'quota = "1/s"\n{key}{text}').rule_table.declared
        assert repr(own.key) == repr(client_ip(["10.0.0.0/8"], ipv6_prefix=48))


def test_the_header_of_proxies(tmp_path: Path) -> None:
    """It is the one that they write."""
    text = 'quota = "1/s"\n[client_ip]\ntrusted_proxies = "cloudflare"\nforwarded_header = "CF-Connecting-IP"\n'
    (own,) = limited(tmp_path / "limits.toml", text).rule_table.declared
    assert repr(own.key) == repr(client_ip("cloudflare", forwarded_header="cf-connecting-ip"))


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    """Some editors write one at the start of a file."""
    (own,) = limited(tmp_path / "limits.toml", '\ufeffquota = "7/s"\n').rule_table.declared
    assert as_text(own.quota) == "7/second"


def test_values_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In texts and in parts of them, as numbers and flags, with defaults, and written as they are."""
    monkeypatch.setenv("LIMIT", "7")
    monkeypatch.setenv("NOTHING", "")
    text = (
        'quota = "${LIMIT}/${UNIT:-minute}"\ncost = "${COST:-2}"\nmax_delay = "${NOTHING:-0.5}"\n'
        '[[rules]]\npath = "/$${LIMIT}"\nquota = "1/s"\nonly = "${ONLY:-TRUE}"\n'
    )
    own, rule = limited(tmp_path / "limits.toml", text).rule_table.declared
    assert (own.quota[0].limit, own.quota[0].period, own.cost, own.max_delay) == (7, 60, 2, 0.5)  # type: ignore[index]
    assert rule.is_final
    assert rule.path == "/${LIMIT}"


def test_rules_of_the_program_come_first(tmp_path: Path) -> None:
    """And the middleware's own options may come from either side."""
    text = 'on_error = "deny"\n[[rules]]\npath = "/b"\nquota = "1/s"\n'
    middleware = limited(tmp_path / "limits.toml", text, quota="9/s", rules=[Rule("/a", "2/s")])
    assert [rule.path for rule in middleware.rule_table.rules] == ["/a", "/b"]
    assert {rule.on_error for rule in middleware.rule_table.declared} == {"deny"}


async def test_tiers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A function names the tier of a request; none is no limit, and an unknown one is a failure of the quota."""
    tiers = f'[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = "1/hour"\npro = ["3/hour", "9/day"]\n'
    rule = '[[rules]]\npath = "/x"\ntier = "plan"\non_error = "deny"\n'
    for text in ('tier = "plan"\non_error = "deny"\n' + tiers, tiers + rule):
        middleware = limited(tmp_path / "limits.toml", text, store=MemoryStore())
        assert await statuses(middleware, "free", 2) == [200, 429]
        assert await statuses(middleware, "pro", 3) == [200, 200, 429]
        assert await statuses(middleware, None, 2) == [200, 200]
        assert await statuses(middleware, "gold", 1) == [503]
    assert f"{HERE}:plan_of returned 'gold', and the tiers of 'plan' are ['free', 'pro']" in caplog.text


async def statuses(middleware: RateLimitMiddleware, plan: str | None, times: int) -> list[int]:
    """The statuses of so many requests of a plan."""
    headers = {} if plan is None else {"x-plan": plan}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(middleware), base_url="http://shop") as client:
        return [(await client.get("/x", headers=headers)).status_code for _ in range(times)]


async def test_headers_and_no_headers(tmp_path: Path) -> None:
    """``"none"`` is what ``None`` is in the program."""
    for headers, names in (("legacy", {"x-ratelimit-limit"}), ("none", set())):
        middleware = limited(tmp_path / "limits.toml", f'quota = "5/s"\nheaders = "{headers}"')
        async with httpx.AsyncClient(transport=httpx.ASGITransport(middleware), base_url="http://shop") as client:
            answer = await client.get("/")
        assert names == {name for name in answer.headers if name == "x-ratelimit-limit" or name == "ratelimit"}


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right as it stands."""
    middleware = RateLimitMiddleware(limits_of.app, config="examples/limits.toml")
    assert {rule.name for rule in middleware.rule_table.rules} >= {"login", "export", "report", "search"}
