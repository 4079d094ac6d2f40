"""The command ``asgi-ratelimit`` and its subcommands."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module

from ...errors import RateLimitError
from . import app_commands, bucket_commands, override_commands, replay_commands
from .arguments import Parser, complete

COMMANDS = (app_commands, replay_commands, bucket_commands, override_commands)
"""The modules of the subcommands, in the order in which the help lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return its exit code.

    0: fine. 1: there are findings, such as a route without a limit. 2: the arguments are wrong, or a store does not
    answer.
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
    complete(parser)
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    _require_command_first(parser, given, commands.choices)
    options = parser.parse_args(given)
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
        example = f": {options.example}" if isinstance(error, FileNotFoundError) else ""
        print(f"error: {_problem(error)}{example}", file=sys.stderr)
        return 2


def _problem(error: Exception) -> str:
    """What an error says, without the number of an error of the operating system."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    problem = "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror
    return f"{problem}: {str(error.filename)!r}"


def _require_command_first(parser: Parser, arguments: Sequence[str], commands: Collection[str]) -> None:
    """Exit with an error for an option of a command in front of it."""
    command = next((each for each in arguments if each in commands), None)
    option = arguments[0].partition("=")[0] if arguments else ""
    if command is not None and option.startswith("--") and option not in ("--version", "--help"):
        parser.example = f"asgi-ratelimit {command} {option} ..."
        parser.error(f"{option} comes after the command")
