"""What a file of limits says is what the arguments would say; an error says where, what, and how it would be right."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from asgi_ratelimit import ConfigurationError, MemoryStore, Penalty, RateLimitMiddleware, Rule, client_ip
from asgi_ratelimit.keys import cookie, header, path_param, state, user
from asgi_ratelimit.quota_text import as_text
from tests.inbound.config import limits_of
from tests.inbound.config.limits_of import HERE, app, limited
from tests.support.asgi import ask, http

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
        methods=["GET", "POST"],
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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('trusted_proxies = ["10.0.0.0/8"]\nipv6_prefix = 48\n', client_ip(["10.0.0.0/8"], ipv6_prefix=48)),
        (
            'trusted_proxies = "cloudflare"\nforwarded_header = "CF-Connecting-IP"\n',
            client_ip("cloudflare", forwarded_header="cf-connecting-ip"),
        ),
    ],
)
def test_trusted_proxies(tmp_path: Path, text: str, key: client_ip) -> None:
    """They count for the default key as well."""
    for given in ("", 'key = "client_ip"\n'):
        (own,) = limited(tmp_path / "limits.toml", f'quota = "1/s"\n{given}[client_ip]\n{text}').rule_table.declared
        assert repr(own.key) == repr(key)


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    """Some editors write one at the start of a file."""
    (own,) = limited(tmp_path / "limits.toml", '\ufeffquota = "7/s"\n').rule_table.declared
    assert as_text(own.quota) == "7/second"


def test_values_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In texts and in parts of them, as numbers and flags, and with defaults."""
    monkeypatch.setenv("LIMIT", "7")
    monkeypatch.setenv("METHOD", "${LIMIT}")
    monkeypatch.setenv("NOTHING", "")
    text = (
        'quota = "${LIMIT}/${UNIT:-minute}"\ncost = "${COST:-2}"\nmax_delay = "${NOTHING:-0.5}"\n'
        '[[rules]]\npath = "/${PATH_OF_RULE:-x}"\nquota = "1/s"\nonly = "${ONLY:-true}"\nmethods = ["${VERB:-GET}"]\n'
        'name = "${METHOD}"\n'
    )
    own, rule = limited(tmp_path / "limits.toml", text).rule_table.declared
    assert (own.quota[0].limit, own.quota[0].period, own.cost, own.max_delay) == (7, 60, 2, 0.5)  # type: ignore[index]
    assert (rule.path, rule.is_final, rule.methods, rule.name) == ("/x", True, {"GET", "HEAD"}, "${LIMIT}")


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
    assert "tier plan has ['free', 'pro'], but its function returned 'gold'" in caplog.text


async def statuses(middleware: RateLimitMiddleware, plan: str | None, times: int) -> list[int]:
    """The statuses of so many requests of a plan."""
    headers = [] if plan is None else [(b"x-plan", plan.encode())]
    return [(await ask(middleware, http("/x", headers=headers))).status for _ in range(times)]


async def test_headers_and_no_headers(tmp_path: Path) -> None:
    """``"none"`` is what ``None`` is in the program."""
    for headers, names in (("legacy", {"x-ratelimit-limit"}), ("none", set())):
        middleware = limited(tmp_path / "limits.toml", f'quota = "5/s"\nheaders = "{headers}"')
        assert names == {"x-ratelimit-limit", "ratelimit"} & {*(await ask(middleware)).headers}


def test_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is right as it stands."""
    middleware = RateLimitMiddleware(limits_of.app, config="examples/limits.toml")
    assert {rule.name for rule in middleware.rule_table.rules} >= {"login", "export", "report", "search"}


# Mistakes

RULE = '[[rules]]\npath = "/x"\nquota = "3/s"\n'
TIER = f'[tiers.plan]\nfunction = "{HERE}:plan_of"\n'

# What follows a rule, and the end of the error about it.
RULE_MISTAKES = [
    ('kye = "user"', " (/x): there is no key 'kye', did you mean 'key'?: the keys here are cost, exempt"),
    ('key = "usr"', ".key (/x): there is no such key as 'usr', did you mean 'user'?: client_ip, user, "),
    ('key = "header"', ".key (/x): there is no such key as 'header': client_ip, user, header:X-Api-Key"),
    ('key = "no_such.module:key"', "No module named 'no_such'"),
    (f'key = "{HERE}:nothing"', "nothing' cannot be imported (module"),
    ('key = "no_such:key"', ".key (/x): 'no_such:key' cannot be imported (No module named 'no_such')"),
    ('key = "heder:X-Api-Key"', ".key (/x): there is no such key as 'heder:X-Api-Key', did you mean 'header'?"),
    (f'key = "{HERE}:answer"', "not answer(request, decision): key="),
    ('settle = "key_of"', ".settle (/x): 'key_of' cannot be imported (No module named 'key_of'): app.limits:plan_of"),
    ('only = "maybe"', ".only (/x): only must be True or False, not 'maybe'"),
    ('penalty = { block_for = "soon" }', ".penalty.block_for (/x): block_for: 'soon' is not a duration"),
    ("penalty = { after = 3 }", "'block_for': Penalty(\"10 minutes\", after=5)"),
    ("exempt = true", " (/x): a rule has either a quota, or a tier, or exempt = true"),
    ('tier = "plan"', " (/x): a tier takes the place of a quota: remove one of them"),
    ('cost = "${NO_COST}"', ", rules[1].cost (/x): the variable NO_COST is not set, and has no default"),
]

# The text of a file, and a part of the error about it. Add a row for each mistake that somebody has made.
MISTAKES = [
    *[(RULE + text, message) for text, message in RULE_MISTAKES],
    ('[[rules]]\npath = "/x"\nqouta = "1/s"', ", rules[1] (/x): there is no key 'qouta', did you mean 'quota'?"),
    ('[[rules]]\npath = "/x"\nexempt = true\ncost = 3', " charges nothing: Rule('/x', \"10/s\", cost=3)"),
    ('[[rules]]\npath = "/x"\nmessages = "1/s"', " (/x): a rule has either a quota, or a tier, or exempt = true"),
    ('[[rules]]\npath = "/x"\nexempt = "true"', "must be True or False, not 'true': exempt = true"),
    ('[[rules]]\nquota = "1/s"', ', rules[1].path: the path of a rule starts with "/", not None'),
    ('[[rules]]\npath = "x"\nquota = "1/s"', ', rules[1].path (x): the path of a rule starts with "/"'),
    (RULE.replace("/x", "/u/{id}") + 'key = "path_param:idd"', "needs a parameter {idd}, which '/u/{id}'"),
    (f'{RULE}name = "a"\n{RULE.replace("3", "4")}name = "a"', ": two rules named 'a' have different quotas"),
    ('rules = "all"', ", rules[1]: 'all' is not a table"),
    (
        '[[rules]]\npath = "/x"\ntier = "plam"\n' + TIER + 'free = "1/s"',
        ".tier (/x): there is no such tier as 'plam', did",
    ),
    ('[tiers.plan]\nfree = "1/s"', ", tiers.plan.function: a tier has a function"),
    (TIER, ", tiers.plan: a tier has quotas"),
    (f'quota = "9/s"\n{TIER}free = "1/s"', ": nothing has the tier 'plan': tier = \"plan\", instead of a quota"),
    ('quota = "9/s"\n' + TIER.replace("tiers", "tier"), ", tier: there is no such tier as \"{'plan': {"),
    (f'{TIER}free = "1/x"', ", tiers.plan.free: '1/x'"),
    (f'[tiers.plan]\nfunction = "{HERE}:answer"\nfree = "1/s"', ", tiers.plan.function: "),
    ('quota = "10/minit"', ", quota: '10/minit': 'minit' is not a unit of time: s, m, h, d or week"),
    ('\nqouta = "1/s"', ": there is no key 'qouta', did you mean 'quota'?: the keys here are client_ip, cost"),
    ('quota = "1/s"\n\n[[rule]]\npath = "/x"', ": there is no key 'rule', did you mean 'rules'?"),
    ('headers = "draft-9"', ', headers: headers must be "draft-10"'),
    ('[client_ip]\ntrusted_proxies = ["nowhere"]', ", client_ip.trusted_proxies: 'nowhere'"),
    ('\nquota = "${NO_LIMIT}"', ", quota: the variable NO_LIMIT is not set, and has no default"),
    ("\n\na = = 1", " is not valid TOML: Invalid value (at line 3"),
    ("a = " + "[" * 5_000, " is not valid TOML: "),
    (" \n# nothing", " is empty, or has nothing but comments"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_an_error_says_where_what_and_how(tmp_path: Path, text: str, message: str) -> None:
    """It names the file, the table and the key; rules are counted from 1. TOML's own errors have a line."""
    path = tmp_path / "limits.toml"
    with pytest.raises(ConfigurationError, match=re.escape(str(path))) as error:
        limited(path, text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is named, because a relative path begins where the program was started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    os.mkfifo(tmp_path / "pipe")
    problems = {"no.toml": "No such", "bytes.toml": "codec", ".": "no file", "pipe": "no file", 5: "expected str"}
    for name, problem in problems.items():
        where = f"{name!r} cannot be read in {tmp_path}: "
        with pytest.raises(ConfigurationError, match=f'{re.escape(where)}.*{problem}.*: config="limits.toml"'):
            RateLimitMiddleware(app, config=name)  # type: ignore[arg-type]


@pytest.mark.parametrize("statement", ["raise RuntimeError('not now')", "raise SystemExit('not now')", "(not now"])
def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Whatever it raises, the error says which key names it."""
    (tmp_path / "broken_module.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"limits.toml, rules\[1\].settle \(/x\): .* cannot be imported"):
        limited(tmp_path / "limits.toml", RULE + 'settle = "broken_module:settle"')


def test_what_the_program_says_too(tmp_path: Path) -> None:
    """Nobody has to guess which one counts, of an option or of the quotas under a name."""
    with pytest.raises(ConfigurationError, match=r"limits.toml, quota: the program gives it, too, quota='2/s': "):
        limited(tmp_path / "limits.toml", 'quota = "1/s"', quota="2/s")
    with pytest.raises(ConfigurationError, match=r"limits.toml: two rules named 'a'"):
        limited(tmp_path / "limits.toml", RULE + 'name = "a"', rules=[Rule("/z", "4/s", name="a")])
