"""The commands in the docs print what the docs say."""

from __future__ import annotations

import asyncio
import re
import sys
from argparse import ArgumentParser
from shlex import split
from typing import Any

import pytest

from asgi_ratelimit import Limiter, Penalty, RateLimitMiddleware, RedisStore, Rule
from asgi_ratelimit.tools.cli import COMMANDS, Parser, main
from tests.support.asgi import ask, ok
from tests.support.server import ROOT

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ("what-if", "command-line")
BLOCKS = {
    f"{page}-{number}": block
    for page in PAGES
    for number, block in enumerate(BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text("utf-8")), 1)
}

MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
DURATION = re.compile(r"\b\d+ (?:h|min|s)(?: \d+ (?:min|s))?")


SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^(?:\$ |kubectl exec \S+ -- |\.venv/bin/)?asgi-ratelimit ([^#\n]*[^#\s])", re.MULTILINE)
TEXTS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
SCRIPTS = "\n".join(script for text in TEXTS for script in SHELL.findall(text.read_text("utf-8")))
# The arguments of the commands that pages show without their output.
SHOWN = sorted(set(TYPED.findall(SCRIPTS)))


class AcceptedError(Exception):
    """The arguments are those of a command."""


@pytest.mark.parametrize("arguments", SHOWN)
def test_a_command_that_is_shown_has_arguments_that_exist(arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read as far as that, and not run: there is no app or store of these names."""
    parse = ArgumentParser.parse_known_args

    def read(self: Parser, *given: Any) -> Any:
        read = parse(self, *given)
        if self.prog != "asgi-ratelimit":  # it is that of the command itself
            return read
        assert read[1] == []
        raise AcceptedError

    monkeypatch.setattr(Parser, "parse_known_args", read)
    with pytest.raises(AcceptedError):
        main(split(arguments))


@pytest.fixture
def busy_store(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that programs have used, in the environment; and the folder of the examples."""

    async def use() -> None:
        store = RedisStore(redis_url, timeout=30, on_error="deny")
        for key, times in (("203.0.113.7", 4), ("198.51.100.9", 2), ("198.51.100.4", 1)):
            for _ in range(times):
                await Limiter("5/day rolling", store=store, name="/login").rate_limit(key)
        login = Rule("/login", "5/day rolling", name="/login", penalty=Penalty("1 hour", after=5))
        middleware = RateLimitMiddleware(ok, "2/hour rolling", store=store, name="shop", rules=[login])
        for _ in range(3):
            await ask(middleware)
        await store.aclose()

    asyncio.run(use())
    monkeypatch.setenv("ASGI_RATELIMIT_STORE", redis_url)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.redis
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.usefixtures("busy_store")
def test_a_command_prints_what_the_page_says(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the time; an exit code other than 0 is that of a finding."""
    printed = ""
    for command in re.findall(r"^\$ asgi-ratelimit (.*)$", block, re.MULTILINE):
        code = main(split(command))
        out, err = capsys.readouterr()
        printed += f"$ asgi-ratelimit {command}\n{out}{err}"
        assert code == int("finding: " in out)
    assert without_times(printed) == without_times(block)


def without_times(text: str) -> list[list[str]]:
    """The words of each line, without times, durations, and empty lines at the end."""
    timeless = DURATION.sub("...", MOMENT.sub("...", text))
    return [line.split() for line in timeless.rstrip().splitlines()]


def test_every_command_has_an_example() -> None:
    """In one of the pages."""
    shown = set(re.findall(r"^\$ asgi-ratelimit (\S+)", "\n".join(BLOCKS.values()), re.MULTILINE))
    parser = Parser()
    commands = parser.add_subparsers()
    for module in COMMANDS:
        module.add_commands(commands)
    assert shown == {*commands.choices}
