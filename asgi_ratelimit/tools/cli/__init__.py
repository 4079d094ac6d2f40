"""The command ``asgi-ratelimit`` and its subcommands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from ...errors import RateLimitError
from . import offline_commands, store_commands
from .output import warn

COMMANDS = (offline_commands, store_commands)
"""The modules of the subcommands, in the order in which the help lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code.

    0: fine. 1: there are findings, such as a route without a limit. 2: the arguments are wrong, a log cannot be read,
    or a store does not answer.
    """
    parser = Parser(
        prog="asgi-ratelimit",
        description="Choose rate limits, check them, and see what they do.",
        example="asgi-ratelimit routes main:app",
    )
    parser.add_argument("--version", action="store_true", help="print the version of the package")
    commands = parser.add_subparsers(title="commands", metavar="command")
    for module in COMMANDS:
        module.add_commands(commands)
    _complete(parser)
    options = parser.parse_args(arguments)
    if options.version:
        print(f"asgi-ratelimit-pacer {import_module('asgi_ratelimit').__version__}")
        return 0
    if not hasattr(options, "run"):
        parser.error("a command is missing, and asgi-ratelimit --help lists them all")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RateLimitError, ValueError, OSError, ImportError) as error:
        path = getattr(error, "filename", None)
        warn(str(error) if path is None else f"{error.strerror}: {path!r}: {options.example}", "error")  # type: ignore[union-attr]
        return 2


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with a valid command as the ``example``; the exit code is 2."""

    def __init__(self, *, example: str = "", **options: Any) -> None:
        super().__init__(**options, epilog=f"example: {example}")
        self.example = example
        self.set_defaults(example=example)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]
        """Parse known arguments; accept no others."""
        options, others = super().parse_known_args(args, namespace)
        if others:
            quotes = "" if others[0].startswith("-") else "; a text with spaces needs quotes"
            self.error(f"{' '.join(others)} is not expected{quotes}")
        return options, others

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit."""
        warn(f"{message}: {self.example}", "error")
        self.exit(2)


def _complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell's request for completions, if argcomplete is installed."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            from argcomplete import autocomplete
        except ImportError:
            return
        autocomplete(parser)
