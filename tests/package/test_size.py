"""The package stays small enough to be read: what grows has to take something else away."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

from tests.support.server import ROOT

PACKAGE = ROOT / "asgi_ratelimit"
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(path: Path) -> int:
    """The lines of a Python file without docstrings, comments and blank lines."""
    text = path.read_text("utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documented and ast.get_docstring(node) is not None:  # type: ignore[arg-type]  # it is one of these
            docstring = node.body[0]  # type: ignore[attr-defined]  # they have a body
            lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


def total(paths: Iterable[Path]) -> int:
    """The lines of code of Python files."""
    return sum(map(lines_of_code, paths))


def test_the_package() -> None:
    """Its code, its files, and its script."""
    files = list(PACKAGE.rglob("*.py"))
    script = (PACKAGE / "stores/redis/rate_limit.lua").read_text("utf-8").splitlines()
    assert total(files) <= 14_000
    assert len(files) <= 110
    assert len([line for line in script if line.strip() and not line.strip().startswith("--")]) <= 480


def test_the_tests() -> None:
    """All of them, with what they share."""
    assert total((ROOT / "tests").rglob("*.py")) <= 24_000


def test_the_docs() -> None:
    """The words of all pages."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    assert sum(len(page.read_text("utf-8").split()) for page in pages) <= 32_000
