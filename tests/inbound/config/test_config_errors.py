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
    ("text", "line", "message"),
    [
        ('quota = "10/minit"', 1, "'minit' is not a unit of time, did you mean 'min'?"),
        ("quota = 10", 1, 'quota = 10: it must be a string: quota = "100/minute"'),
        ('\nqouta = "1/s"', 2, "there is no key 'qouta', did you mean 'quota'?: quota = \"100/minute\""),
        ("zzz = 1", 1, "there is no key 'zzz': the keys here are client_ip, cost"),
        (RULE + 'kye = "user"', 4, "did you mean 'key'?"),
        (RULE + 'key = "usr"', 4, "there is no such key, did you mean 'user'?"),
        (RULE + 'key = "session"', 4, 'there is no such key: client_ip and user are, and: key = "header:X-Api-Key"'),
        (RULE + 'key = "heder:X"', 4, "did you mean 'header'?"),
        (RULE + 'key = "header:"', 4, "spaces nor a colon, not '': key = \"header:X-Api-Key\""),
        (RULE + f'key = "{HERE}:nothing"', 4, "it cannot be imported (module"),
        (RULE + 'key = "no_such.module:key"', 4, "No module named 'no_such'"),
        (RULE + f'key = "{HERE}:answer"', 4, "which answer("),
        (RULE + f'key = "{HERE}:"', 4, "it does not name a function"),
        (RULE + "cost = 0", 4, "cost must be a finite number above 0, at most 2**53, not 0: cost = 1"),
        (RULE + 'cost = "much"', 4, "it is not a number: cost = 1"),
        (RULE + "cost = true", 4, "cost = true: it is not a number"),
        (RULE + 'only = "maybe"', 4, "it is neither true nor false: only = true"),
        (RULE + 'methods = "GET"', 4, 'it is not a list of methods: methods = ["POST"]'),
        (RULE + "methods = []", 4, 'methods = []: methods is a list of HTTP methods, not []: methods = ["POST"]'),
        (RULE + 'on_error = "denny"', 4, "it is not one of local, allow, deny, did you mean 'deny'?"),
        (RULE + "on_error = 3", 4, "on_error = 3"),
        (RULE + "max_delay = -1", 4, "max_delay must be seconds from 0"),
        (RULE + 'messages = "1/x"', 4, "messages"),
        (RULE + 'name = ""', 4, "name"),
        (RULE + f'settle = "{HERE}:key_of"', 4, "settle"),
        (RULE + f'on_limited = "{HERE}:key_of"', 4, "on_limited"),
        (RULE + 'penalty = { block_for = "soon" }', 4, "'soon' is not a duration"),
        (RULE + "penalty = { after = 3 }", 4, "block_for is missing: penalty = { block_for"),
        (RULE + 'penalty = "1 hour"', 4, "it is not a table: penalty ="),
        (RULE + '[rules.penalty]\nblock_for = "1 hour"\nbefore = 3', 6, "there is no key 'before'"),
        ('quota = "1/s"\n\n[[rule]]\npath = "/x"', 3, "there is no key 'rule', did you mean 'rules'?: [[rules]] with"),
        (RULE + 'store = "redis://a"', 4, "there is no key 'store', for all limits have the store of the middleware"),
        ('\nstore = "redis://a"', 2, 'RateLimitMiddleware(app, config="limits.toml", store="redis://localhost")'),
        (
            'quota = "1/s"\n[tier.plan]\nfree = "1/s"',
            2,
            "tier names one of the tables of tiers: [tiers.plan] with func",
        ),
        ('[tier.plan]\nfree = "1/s"', 1, "tier names one of the tables of tiers: [tiers.plan] with function ="),
        (RULE + "exempt = true", 1, "a rule has either a quota, or a tier, or exempt = true"),
        ('[[rules]]\npath = "/x"', 1, "a rule has either a quota"),
        ('[[rules]]\nquota = "1/s"', 1, 'a rule has no path: path = "/login"'),
        (
            '[[rules]]\npath = "x"\nquota = "1/s"',
            2,
            'path = "x": the path of a rule starts with "/", not \'x\': path = "/login"',
        ),
        (
            'quota = "0/s"',
            1,
            'quota = "0/s": limit must be a finite number above 0, at most 2**53, not 0: quota = "100',
        ),
        ("quota = []", 1, 'quota = []: at least one quota is needed, not []: quota = "100/minute"'),
        (RULE + f'on_limited = "{HERE}:key_of"', 4, 'does not take: on_limited = "app.limits:answer"'),
        ('[[rules]]\npath = "/u/{id"\nquota = "1/s"', 2, "'/u/{id' has a brace"),
        ('[[rules]]\npath = "/x"\nexempt = true\nmax_delay = 2.0', 1, "nothing to wait for"),
        ('[[rules]]\npath = "/x"\nexempt = true\ncost = 2', 1, "cost=2 without a quota charges nothing"),
        ('rules = "all"', 1, 'rules = "all": rules are tables: [[rules]]'),
        (RULE + 'tier = "plan"', 4, "a tier takes the place of a quota"),
        ('tier = "plan"', 1, 'tier = "plan": there are no tiers: [tiers.plan] with function = "app.limits:plan_of"'),
        (f'tier = "plam"\n[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = "1/s"', 1, "did you mean 'plan'?"),
        ('[tiers.plan]\nfree = "1/s"', 1, "a tier has no function"),
        (f'[tiers.plan]\nfunction = "{HERE}:plan_of"', 1, "tiers have no quotas"),
        (f'[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = "1/x"', 3, "free = "),
        (f'[tiers.plan]\nfunction = "{HERE}:plan_of"\nfree = []', 3, "free = []: at least one quota is needed"),
        (f'[tiers.plan]\nfunction = "{HERE}:answer"\nfree = "1/s"', 2, "function"),
        ("tiers = 3", 1, "tiers = 3: it is not a table"),
        ('headers = "draft-9"', 1, "it is not one of draft-10, legacy, both, none, did you mean 'draft-10'?"),
        ("max_waiting = 0", 1, "max_waiting must be a whole number"),
        ('[client_ip]\ntrusted_proxies = ["nowhere"]', 1, "nowhere"),
        ("[client_ip]\nforwarded_header = 5", 2, '= 5: it must be a string: forwarded_header = "x-real-ip"'),
        ("max_delay = 2.0", 1, "without a quota or rules has nothing to wait for"),
        ('[penalty]\nblock_for = "1 hour"', 1, "has no quota"),
        (f'{RULE}name = "a"\n\n[[rules]]\nname = "a"\npath = "/y"\nquota = "4/s"', 6, "two rules named 'a'"),
        ('\nquota = "${NO_LIMIT}"', 2, "the environment variable NO_LIMIT is not set, and has no default"),
        ('quota = "${NO-LIMIT}"', 1, "is not a variable: ${NAME}, or ${NAME:-default}"),
        ('\nkey = "header"', 2, 'key = "header": it lacks a name, header:X-Api-Key'),
        ('[[rules]]\npath = "/u/{id}"\nquota = "1/s"\nkey = "path_param:idd"', 4, "needs a parameter {idd}"),
        ("\n\na = = 1", 3, "not valid TOML: "),
        ("quota = 5/minute", 1, 'quota = 5/minute: not valid TOML, a text has quotes: quota = "5/minute"'),
        (
            "cost = 2\nkey = client_ip # all",
            2,
            'key = client_ip # all: not valid TOML, a text has quotes: key = "client_ip"',
        ),
        (RULE + "only = True", 4, "only = True: not valid TOML, true and false have small letters: only = true"),
        (
            '[client_ip]\nipv6_prefix = 64\nquota = "5/minute"',
            3,
            'what is for all requests stands above the first [table]: quota = "100/minute"',
        ),
        (RULE + 'headers = "both"', 4, "what is for all requests stands above the first [table]: headers ="),
        (
            f'[tiers.plan]\nfunction = "{HERE}:answer"\nfree = "1/s"',
            2,
            'does not take: function = "app.limits:plan_of"',
        ),
        (
            f'[tiers.plan]\nfunction = "{HERE}:plan_by_header"\nfree = "1/s"',
            2,
            "only FastAPI can call it: let a dependency set request.state.plan, which the function returns, def ",
        ),
        (
            f'[tiers.plan]\nfunction = "{HERE}:plan_scheme"\nfree = "1/s"',
            2,
            "function=APIKeyHeader(...) is a security scheme of FastAPI, which takes any credential",
        ),
    ],
)
def test_an_error_says_where_what_and_how(tmp_path: Path, text: str, line: int, message: str) -> None:
    """The line is that of the key, or of the table where a key is missing."""
    path = tmp_path / "limits.toml"
    with pytest.raises(ConfigurationError, match=re.escape(f"{path}, line {line}: ")) as error:
        limited(path, text)
    assert message in str(error.value)


def test_a_file_that_is_not_there_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path begins in the folder in which the program was started, which may be another than is meant."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=re.escape(f"{tmp_path / 'no.toml'} cannot be read: No such file")):
        RateLimitMiddleware(app, config="no.toml")


def test_an_error_is_one_line(tmp_path: Path) -> None:
    """Also where the quota has an error of several, because a log has one line for each."""
    path = tmp_path / "limits.toml"
    with pytest.raises(ConfigurationError) as error:
        limited(path, 'quota = "4/mintue"')
    assert str(error.value) == (
        f"{path}, line 1: quota = \"4/mintue\": 'mintue' is not a unit of time, did you mean 'minute'?: "
        'quota = "100/minute"'
    )


@pytest.mark.parametrize("statement", ["raise RuntimeError('not now')", "raise SystemExit('not now')", "(not now"])
def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Whatever it raises, the error says which line names it."""
    (tmp_path / "broken_module.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"limits.toml, line 4: settle = .*it cannot be imported"):
        limited(tmp_path / "limits.toml", RULE + 'settle = "broken_module:settle"')


def test_lists_that_are_nested_too_deeply(tmp_path: Path) -> None:
    """The error says in which file."""
    with pytest.raises(ConfigurationError, match=r"limits.toml: its lists are nested too deeply"):
        limited(tmp_path / "limits.toml", "a = " + "[" * 5_000)


def test_an_unfinished_text(tmp_path: Path) -> None:
    """It is wrong on its last line."""
    with pytest.raises(ConfigurationError, match="the last line: not valid TOML"):
        limited(tmp_path / "limits.toml", "a = [")


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
        match=r"line 1: quota = \"1/s\": the program gives it, too, quota='2/s': remove one of them$",
    ):
        limited(tmp_path / "limits.toml", 'quota = "1/s"', quota="2/s")


def test_a_rule_that_is_at_odds_with_one_of_the_program(tmp_path: Path) -> None:
    """The error says where that of the file is."""
    with pytest.raises(ConfigurationError, match=r"line 1: two rules named 'a'"):
        limited(tmp_path / "limits.toml", RULE + 'name = "a"', rules=[Rule("/z", "4/s", name="a")])
