"""A file of limits, which is read again when it has changed; its last valid version counts."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from stat import S_ISREG
from typing import Any, Protocol
from weakref import ref

from ...counts.repeating import EVERY, Repeating
from ...errors import ConfigurationError
from ...quota_text import as_text
from ..rules import Rule
from .limits_file import settings_of
from .options import AT_START, Options

logger = logging.getLogger("asgi_ratelimit")

SETTLED_AFTER = 0.1
"""Seconds for which a file must not change before it is read: somebody may be writing it."""


class FileSubscriber(Protocol):
    """An object whose options come from a file; it is held weakly."""

    def options_changed(self, options: Options) -> None:
        """Apply these options, from any thread. Raises ``ValueError`` if they are invalid, and then applies nothing."""
        ...


class LimitsFile(Repeating):
    """The options that a file and the program give together. ``of_program`` are those of the program.

    Raises ``ConfigurationError`` for a file that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], of_program: Options) -> None:
        super().__init__(_nothing_to_close)
        if not isinstance(path, (str, os.PathLike)):
            raise ConfigurationError(f'config is the path of a file, not {path!r}: config="limits.toml"')
        self._path = os.fspath(path)
        self._of_program = of_program
        self._subscriber: Callable[[], FileSubscriber | None] = _nobody
        self._signature = self._signed()
        self._content = self._read()
        self.options = self._options_of(self._content)

    @property
    def is_needed(self) -> bool:
        """Whether somebody has these options."""
        return self._subscriber() is not None

    def watch(self, subscriber: FileSubscriber) -> None:
        """Inform a subscriber of changes from now on."""
        self._subscriber = ref(subscriber)
        self.start()

    def is_other_version(self, other: LimitsFile) -> bool:
        """Whether another has read the same file, but not the same version of it."""
        return os.path.abspath(self._path) == os.path.abspath(other._path) and self._content != other._content

    async def run(self) -> float:
        """Check whether the file has changed."""
        signature = self._signed()
        if signature != self._signature:
            await asyncio.sleep(SETTLED_AFTER)
            if signature != self._signed():
                return SETTLED_AFTER
            self._signature = signature
            self._reload()
        return EVERY

    def _reload(self) -> None:
        """Apply the changes, and log each one, or log what is wrong, once for each version of the file."""
        subscriber = self._subscriber()
        if subscriber is None:
            return
        try:
            self._require_file()
            content = self._read()
            if content == self._content:
                return
            self._content = content
            options = self._options_of(content)
            self._apply(options, subscriber)
        except Exception as error:  # noqa: BLE001  # it may import modules of the program
            logger.error("the limits stay as they were: %s", error)
            return
        before, self.options = self.options, options
        for change in changes(before, options):
            logger.warning("%s: %s", self._path, change)

    def _apply(self, options: Options, subscriber: FileSubscriber) -> None:
        try:
            subscriber.options_changed(options)
        except ValueError as error:
            raise ConfigurationError(f"{self._path}: {error}") from error

    def _options_of(self, content: str) -> Options:
        return self._of_program.merged(settings_of(content, self._path, os.environ))

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8-sig") as file:
                content = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            where = os.path.abspath(self._path)
            raise ConfigurationError(f'{where} cannot be read: {reason}: config="limits.toml"') from error
        lines = [line.strip() for line in content.splitlines() if line.strip()]
        if all(line.startswith("#") for line in lines):
            what = "has nothing but comments" if lines else "is empty"
            raise ConfigurationError(f'{self._path} {what}: quota = "100/minute"')
        return content

    def _require_file(self) -> None:
        """Raise ``ConfigurationError`` for anything but a file: to open a pipe could block for ever."""
        with suppress(OSError):  # of which ``_read`` says more
            if not S_ISREG(os.stat(self._path).st_mode):
                raise ConfigurationError(f'{os.path.abspath(self._path)} is no file: config="limits.toml"')

    def _signed(self) -> tuple[int, ...] | None:
        """A signature that changes whenever the file is written; ``None`` if there is no file."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _nobody() -> None:
    return None


async def _nothing_to_close() -> None:
    """A file is closed as soon as it is read."""


def changes(old: Options, new: Options) -> list[str]:
    """One line for each option and each rule that differs."""
    lines = list(_changed_options(old, new))
    before, after = _by_name(old.rules), _by_name(new.rules)
    lines.extend([f"{name} is gone: {_shown(rule.quota)}" for name, rule in before.items() if name not in after])
    lines.extend([f"{name} is new: {_shown(rule.quota)}" for name, rule in after.items() if name not in before])
    for name in [name for name in after if name in before]:
        different = [
            f"{each.name} {_shown(getattr(before[name], each.name))} -> {_shown(getattr(after[name], each.name))}"
            for each in fields(Rule)
            if _shown(getattr(before[name], each.name)) != _shown(getattr(after[name], each.name))
        ]
        if different:
            lines.append(f"{name}: {', '.join(different)}")
    if not lines and [*before] != [*after]:
        lines.append("the rules have another order")
    return lines


def _changed_options(old: Options, new: Options) -> Iterator[str]:
    for each in fields(Options):
        before, after = _shown(getattr(old, each.name)), _shown(getattr(new, each.name))
        if each.name != "rules" and before != after:
            later = ", from the next start on" if each.name in AT_START else ""
            yield f"{each.name} {before} -> {after}{later}"


def _by_name(rules: Sequence[Rule]) -> dict[str, Rule]:
    named: dict[str, Rule] = {}
    for rule in rules:
        name = rule.name or " ".join([*sorted(rule.methods or ()), rule.path])
        count = 1
        while (name if count == 1 else f"{name} {count}") in named:
            count += 1
        named[name if count == 1 else f"{name} {count}"] = rule
    return named


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple) and value and hasattr(value[0], "period"):
        return as_text(value)
    return value if isinstance(value, str) else repr(value)
