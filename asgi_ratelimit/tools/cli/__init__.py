"""The command ``asgi-ratelimit`` and its subcommands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Any, NoReturn

from ...errors import RateLimitError
from . import offline_commands, store_commands
from .output import warn

# The modules of the subcommands, in the order in which the help lists them.
COMMANDS = (offline_commands, store_commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code.

    0: fine. 1: there are findings, such as a route without a limit. 2: the arguments are wrong, a log cannot be read,
    or a store does not answer. 130: Ctrl-C.
    """
    what = "Choose rate limits, check them, and see what they do."
    parser = Parser(prog="asgi-ratelimit", description=what, example="asgi-ratelimit routes main:app")
    release = f"asgi-ratelimit-pacer {version('asgi-ratelimit-pacer')}"
    parser.add_argument("--version", action="version", version=release, help="print the version of the package")
    commands = parser.add_subparsers(title="commands", metavar="command", required=True)
    for module in COMMANDS:
        module.add_commands(commands)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, TextIOWrapper):  # a key may have characters that a terminal has not
            output.reconfigure(errors="backslashreplace")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (RateLimitError, ValueError, OSError, ImportError) as error:
        path = getattr(error, "filename", None)
        warn(str(error) if path is None else f"{error.strerror}: {path!r}: {options.parser.example}", "error")  # type: ignore[union-attr]
        return 2


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with a valid command as the ``example``; the exit code is 2."""

    def __init__(self, *, example: str = "", **options: Any) -> None:
        super().__init__(**options, epilog=f"example: {example}")
        self.example = example
        self.set_defaults(parser=self)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit."""
        warn(f"{message}: {self.example}", "error")
        self.exit(2)
