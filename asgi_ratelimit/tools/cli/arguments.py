"""The arguments of commands: one line for each error, with a valid example, and completion by the shell."""

from __future__ import annotations

import argparse
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

from ...inbound.functions.function_arguments import takes
from .output import warn

Options = argparse.Namespace

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
        warn(f"{message}: {self.example}", "error")
        self.exit(2)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


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
        if options.factory:
            if not callable(app) or not takes(app, 0):
                raise ValueError("it is not a function without arguments that makes the app: leave out --factory")
            app = app()
        if not callable(app) or not takes(app, 3):
            hint = ", but a function that makes one needs --factory" if callable(app) and takes(app, 0) else ""
            raise ValueError(f"{type(app).__name__!r} is not an ASGI app, which takes scope, receive and send{hint}")
        return app
    except ModuleNotFoundError as error:
        start = " ".join(example.split()[:2])
        raise ValueError(f"no app at {options.app!r}: {error}: {start} {options.app} --app-dir src") from error
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"no app at {options.app!r}: {error}: {example}") from error
    except (Exception, SystemExit) as error:  # the module is the program's, which may raise whatever it likes
        place = extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({Path(place.filename).name}, line {place.lineno})"
        raised = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}{where}"
        raise ValueError(f"no app at {options.app!r}: {raised}: {example}") from error


def require_no_path(app: str, example: str) -> None:
    """Raise ``ValueError`` for the path of a file in the place of a module, with the module that is meant."""
    path = _PATH_OF_MODULE.fullmatch(app)
    if path is not None:
        folder, module, attribute = path.groups()
        meant = f"{module}:{attribute or 'app'}"
        command = f"{' '.join(example.split()[:2])} {meant}" + (f" --app-dir {folder}" if folder else "")
        raise ValueError(f"no app at {app!r}, did you mean {meant!r}?: {command}")


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
