"""What is wrong with a file of limits: the error says where, what, and how it would be right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from asgi_ratelimit import RateLimitMiddleware, Rule
from asgi_ratelimit.errors import ConfigurationError
from tests.inbound.config.limits_of import HERE, app, limited

RULE = '[[rules]]\npath = "/x"\nquota = "3/s"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('quota = "10/minit"', ", quota: '10/minit': 'minit' is not a unit of time, did you mean 'min'?"),
        ("quota = 10", ", quota: a quota is a text or a quota, not 10"),
        ("quota = []", ", quota: at least one quota is needed, not []"),
        ('quota = "0/s"', ", quota: '0/s': limit must be a finite number above 0"),
        ('\nqouta = "1/s"', ": there is no key 'qouta', did you mean 'quota'?: the keys here are client_ip, cost"),
        ('quota = "1/s"\n\n[[rule]]\npath = "/x"', ": there is no key 'rule', did you mean 'rules'?"),
        (RULE + 'kye = "user"', ", rules[1] (/x): there is no key 'kye', did you mean 'key'?"),
        (RULE + 'store = "redis://a"', ", rules[1] (/x): there is no key 'store'"),
        (RULE + 'headers = "both"', ", rules[1] (/x): there is no key 'headers'"),
        (
            RULE + 'key = "usr"',
            ", rules[1].key (/x): there is no such key as 'usr', did you mean 'user'?: client_ip, user, ",
        ),
        (
            RULE + 'key = "session"',
            ", rules[1].key (/x): there is no such key as 'session': client_ip, user, header:",
        ),
        (RULE + 'key = "header:"', ", rules[1].key (/x): there is no such key as 'header:'"),
        (RULE + f'key = "{HERE}:nothing"', "nothing' cannot be imported (module"),
        (RULE + 'key = "no_such.module:key"', "No module named 'no_such'"),
        (RULE + f'key = "{HERE}:answer"', "which answer("),
        (RULE + f'key = "{HERE}:"', "does not name a function"),
        (RULE + "cost = 0", ", rules[1].cost (/x): cost must be a finite number above 0, at most 2**53, not 0"),
        (RULE + "cost = true", ", rules[1].cost (/x): it must be a number, not true"),
        (
            RULE + 'cost = "much"',
            ", rules[1].cost (/x): cost must be a finite number above 0, at most 2**53, not 'much'",
        ),
        (RULE + 'only = "maybe"', ", rules[1].only (/x): only must be True or False, not 'maybe'"),
        (RULE + 'methods = "GET"', ", rules[1].methods (/x): methods is a list of HTTP methods, not 'GET'"),
        (RULE + "methods = []", ", rules[1].methods (/x): methods is a list of HTTP methods, not ()"),
        (RULE + 'on_error = "denny"', "not 'denny'"),
        (RULE + "on_error = 3", ", rules[1].on_error (/x): on_error must be"),
        (RULE + "max_delay = -1", "max_delay must be seconds from 0"),
        (RULE + 'messages = "1/x"', ", rules[1].messages (/x): '1/x'"),
        (RULE + 'name = ""', ", rules[1].name"),
        (RULE + f'settle = "{HERE}:key_of"', "settle is a function of the status"),
        (RULE + f'on_limited = "{HERE}:key_of"', "on_limited is called with"),
        (
            RULE + 'penalty = { block_for = "soon" }',
            "penalty.block_for (/x): block_for: 'soon' is not a duration",
        ),
        (RULE + "penalty = { after = 3 }", "'block_for': Penalty(\"10 minutes\", after=5)"),
        (RULE + 'penalty = "1 hour"', ", rules[1].penalty (/x): '1 hour' is not a table"),
        (
            RULE + '[rules.penalty]\nblock_for = "1 hour"\nbefore = 3',
            ", rules[1].penalty (/x): there is no key 'before'",
        ),
        (RULE + "exempt = true", ", rules[1] (/x): a rule has either a quota, or a tier, or exempt = true"),
        ('[[rules]]\npath = "/x"', ", rules[1] (/x): a rule has either a quota"),
        ('[[rules]]\nquota = "1/s"', ', rules[1]: a rule has no path: path = "/login"'),
        ('[[rules]]\npath = "x"\nquota = "1/s"', ', rules[1].path (x): the path of a rule starts with "/"'),
        ('[[rules]]\npath = "/u/{id"\nquota = "1/s"', "'/u/{id' has a brace"),
        ('[[rules]]\npath = "/x"\nexempt = true\nmax_delay = 2.0', ", rules[1] (/x): max_delay"),
        ('[[rules]]\npath = "/x"\nexempt = true\ncost = 2', "cost=2 without a quota charges nothing"),
        (
            '[[rules]]\npath = "/u/{id}"\nquota = "1/s"\nkey = "path_param:idd"',
            "needs a parameter {idd}, which '/u/{id}'",
        ),
        (
            '[[rules]]\npath = "/u/{id}"\nkey = "path_param:id"\nquota = "1/s"\ncost = 0',
            ", rules[1].cost (/u/{id}): cost must be",
        ),
        ('rules = "all"', ", rules[1]: 'all' is not a table"),
        (RULE + 'exempt = "maybe"', ", rules[1].exempt (/x): exempt must be True or False, not 'maybe'"),
        (
            '[[rules]]\npath = "/x"\ntier = "plan"',
            ", rules[1].tier (/x): there is no such tier as 'plan': [tiers.plan] with function =",
        ),
        ('[tier.plan]\nfree = "1/s"', ", tier: it must be a string, not {'plan': {'free': '1/s'}}"),
        (
            f'quota = "1/s"\ntier = "plan"\n[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = "1/s"',
            "takes the place of",
        ),
        (
            f'tier = "plam"\n[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = "1/s"',
            "did you mean 'plan'?: tier = \"plan\"",
        ),
        ('[tiers.plan]\nfree = "1/s"', ", tiers.plan: a tier has a function and quotas"),
        (f'[tiers.plan]\nfunction = "{HERE}:plan_of"', ", tiers.plan: a tier has a function and quotas"),
        (f'[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = "1/x"', ", tiers.plan.free: '1/x'"),
        (f'[tiers.plan]\nfunction = "{HERE}:answer"\nfree = "1/s"', ", tiers.plan.function: "),
        (
            f'[tiers.plan]\nfunction = "{HERE}:plan_by_header"\nfree = "1/s"',
            "is a dependency of FastAPI",
        ),
        (f'[tiers.plan]\nfunction = "{HERE}:plan_scheme"\nfree = "1/s"', "is a dependency of FastAPI"),
        ("tiers = 3", ", tiers: 3 is not a table"),
        ('headers = "draft-9"', ', headers: headers must be "draft-10"'),
        ("max_waiting = 0", "max_waiting must be a whole number"),
        ('[client_ip]\ntrusted_proxies = ["nowhere"]', ", client_ip.trusted_proxies: 'nowhere'"),
        ("[client_ip]\nforwarded_header = 5", ", client_ip.forwarded_header: a key needs a name"),
        ("max_delay = 2.0", "without a quota or rules has nothing to wait for"),
        ('[penalty]\nblock_for = "1 hour"', "has no quota"),
        (
            f'{RULE}name = "a"\n\n[[rules]]\nname = "a"\npath = "/y"\nquota = "4/s"',
            ", rules[2] (a): two rules named 'a'",
        ),
        ('\nquota = "${NO_LIMIT}"', "the environment variable NO_LIMIT is not set, and has no default"),
        ('quota = "${NO-LIMIT}"', "is not a variable: ${NAME}, or ${NAME:-default}"),
        ("\n\na = = 1", " is not valid TOML: Invalid value (at line 3"),
        ("quota = 5/minute", " is not valid TOML: Expected newline or end of document after a statement (at line 1"),
        ("a = [", " is not valid TOML: "),
        ("a = " + "[" * 5_000, " is not valid TOML: "),
    ],
)
def test_an_error_says_where_what_and_how(tmp_path: Path, text: str, message: str) -> None:
    """It names the file, the table and the key; rules are counted from 1. TOML's own errors have a line."""
    path = tmp_path / "limits.toml"
    with pytest.raises(ConfigurationError, match=re.escape(str(path))) as error:
        limited(path, text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path begins in the folder in which the program was started, which may be another than is meant."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=re.escape(f"{tmp_path / 'no.toml'} cannot be read: No such file")):
        RateLimitMiddleware(app, config="no.toml")


@pytest.mark.parametrize("statement", ["raise RuntimeError('not now')", "raise SystemExit('not now')", "(not now"])
def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Whatever it raises, the error says which key names it."""
    (tmp_path / "broken_module.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"limits.toml, rules\[1\].settle \(/x\): .* cannot be imported"):
        limited(tmp_path / "limits.toml", RULE + 'settle = "broken_module:settle"')


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    """It is missing, empty, or no text."""
    path = tmp_path / "limits.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=re.escape(str(path))):
        RateLimitMiddleware(app, config=path)


def test_what_is_no_path() -> None:
    """It is refused."""
    with pytest.raises(ConfigurationError, match=r'not 5: config="limits.toml"'):
        RateLimitMiddleware(app, config=5)  # type: ignore[arg-type]


def test_an_option_that_the_program_gives_too(tmp_path: Path) -> None:
    """Nobody has to guess which one counts."""
    with pytest.raises(
        ConfigurationError,
        match=r"limits.toml, quota: '1/s': the program gives it, too, quota='2/s': remove one of them$",
    ):
        limited(tmp_path / "limits.toml", 'quota = "1/s"', quota="2/s")


def test_a_rule_that_is_at_odds_with_one_of_the_program(tmp_path: Path) -> None:
    """The error says where that of the file is."""
    with pytest.raises(ConfigurationError, match=r"limits.toml, rules\[1\] \(a\): two rules named 'a'"):
        limited(tmp_path / "limits.toml", RULE + 'name = "a"', rules=[Rule("/z", "4/s", name="a")])
