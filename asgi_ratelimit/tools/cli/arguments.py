"""The arguments of commands: one line for each error, with a valid example, and completion by the shell."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

from ...errors import QuotaError
from ...inbound.functions.function_arguments import takes
from ...quota_text import parse_period

Options = argparse.Namespace

_UNKNOWN_COMMAND = re.compile(r"argument command: invalid choice: '(.*?)' \((.*)\)")
_WORD = re.compile(r"[a-z-]+")
_PATH_OF_MODULE = re.compile(r"(?:(.*)/)?(\w+)\.py(?::([\w.]*))?")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with a valid command as the ``example``; the exit code is 2."""

    def __init__(self, *, example: str = "", **options: Any) -> None:
        super().__init__(**options, epilog=f"example: {example}")
        self.example = example
        self.set_defaults(example=example)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Options, list[str]]:  # type: ignore[override]
        """Parse known arguments; accept no others."""
        options, others = super().parse_known_args(args, namespace)
        if others:
            quotes = "" if others[0].startswith("-") else "; a text with spaces needs quotes"
            self.error(f"{' '.join(others)} is not expected{quotes}")
        return options, others

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and exit."""
        unknown = _UNKNOWN_COMMAND.search(message)
        near = get_close_matches(unknown[1], _WORD.findall(unknown[2]), 1) if unknown else []
        if unknown and near:
            message = f"{unknown[1]!r} is not a command, did you mean {near[0]!r}?"
            self.example = self._example_of(near[0])
        print(f"error: {message}: {self.example}", file=sys.stderr)
        self.exit(2)

    def _example_of(self, command: str) -> str:
        """The example of a command of this parser."""
        lists: list[dict[str, Parser]] = [
            each.choices for each in self._actions if isinstance(each, argparse._SubParsersAction)
        ]
        return next(parsers[command].example for parsers in lists if command in parsers)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def add_app(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where an app is found."""
    parser.add_argument("--app-dir", default=".", help="the folder of the module (default: here)")
    parser.add_argument("--factory", action="store_true", help="the attribute is a function that makes the app")


def load_app(options: Options, example: str) -> Any:
    """The app at ``options.app``, as ``module:attribute``. Raises ``ValueError`` where there is none."""
    require_no_path(options.app, example)
    module, _, attribute = options.app.partition(":")
    try:
        if not module or not attribute:
            raise ValueError("it must be a module, a colon and an attribute")
        add_folder(options.app_dir)
        app: Any = import_module(module)
        for name in attribute.split("."):
            app = getattr(app, name)
        return _made(app) if options.factory else _checked(app)
    except (ImportError, AttributeError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
            folder, start = str(Path(options.app_dir).resolve()), " ".join(example.split()[:2])
            hint = f"no module {error.name!r} in {folder!r}: {start} {options.app} --app-dir src"
            raise ValueError(f"no app at {options.app!r}: {hint}") from error
        raise ValueError(f"no app at {options.app!r}: {error}: {example}") from error
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        raise ValueError(f"no app at {options.app!r}: {_raised(error)}: {example}") from error


def require_no_path(app: str, example: str) -> None:
    """Raise ``ValueError`` for the path of a file in the place of a module, with the module that is meant."""
    path = _PATH_OF_MODULE.fullmatch(app)
    if path is not None:
        folder, module, attribute = path.groups()
        meant, start = f"{module}:{attribute or 'app'}", " ".join(example.split()[:2])
        folder = f" --app-dir {folder}" if folder else ""
        raise ValueError(f"no app at {app!r}, did you mean {meant!r}?: {start} {meant}{folder}")


def _raised(error: BaseException) -> str:
    """What an app has raised, and where, in one line."""
    place = extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}{where}"


def _made(factory: Any) -> Any:
    """The app that a function returns. Raises ``ValueError`` for anything else, and if the function returns no app."""
    if not callable(factory) or not takes(factory, 0):
        raise ValueError("it is not a function without arguments that makes the app: leave out --factory")
    return _checked(factory())


def _checked(app: Any) -> Any:
    """``app``, if it may be an ASGI app; ``ValueError`` otherwise."""
    if callable(app) and takes(app, 3):
        return app
    hint = ", but a function that makes one needs --factory" if callable(app) and takes(app, 0) else ""
    raise ValueError(f"{type(app).__name__!r} is not an ASGI app, which takes scope, receive and send{hint}")


def add_folder(folder: str) -> None:
    """Let modules in a folder be imported."""
    sys.path.insert(0, str(Path(folder).resolve()))


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell's request for completions, if argcomplete is installed."""
    if "_ARGCOMPLETE" in os.environ:
        try:
            from argcomplete import autocomplete
        except ImportError:
            return
        autocomplete(parser)


def positive(text: str) -> int:
    """A whole number above 0. Raises ``argparse.ArgumentTypeError``."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number above 0, not {text!r}")
    return int(text)


def seconds_of(option: str, text: str) -> float:
    """The seconds of a duration such as ``1h`` or ``10 minutes``. Raises ``ValueError``, which names the option."""
    try:
        return parse_period(text)
    except QuotaError:
        raise ValueError(f"{option} must be a duration, not {text!r}: {option} 1h, {option} '10 minutes'") from None


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
