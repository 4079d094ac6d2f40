"""The package is built in layers, and imports point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter

import pytest

from tests.support.server import ROOT

PACKAGE = "asgi_ratelimit"
FOLDER = ROOT / PACKAGE

LAYERS = (
    {"errors", "clock", "_background", "_keys"},
    {"quotas"},
    {"decision", "quota_text"},
    {"algorithms", "arrivals", "headers", "hooks"},
    {"simulate", "stores"},
    {"_pacing"},
    {"limiter"},
    {"inbound", "outbound", "metrics", "testing"},
    {PACKAGE},
    {"timeline"},
    {"cli"},
    {"__main__"},
)
"""From the bottom to the top; a name is that of a module or of a package in ``asgi_ratelimit``."""

OPTIONAL = {"fastapi", "httpx", "httpx2", "hypothesis", "matplotlib", "opentelemetry", "prometheus_client", "uvicorn"}

FILES = {
    ".".join((PACKAGE, *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(FOLDER.rglob("*.py"))
}
"""Every module of the package, and its file."""


@pytest.mark.parametrize("module", FILES)
def test_a_module_has_its_place(module: str) -> None:
    """A new module or package must be given a layer."""
    assert any(part_of(module) in layer for layer in LAYERS), f"{module} is in no layer"


@pytest.mark.parametrize("module", FILES)
def test_imports_point_down(module: str) -> None:
    """A module imports only from the layers below its own, and from its own package."""
    for imported in own_imports(module):
        assert part_of(imported) == part_of(module) or level(imported) < level(module), f"{module} imports {imported}"


def test_no_imports_go_round_in_a_circle() -> None:
    """There is an order in which every module comes after those that it imports."""
    TopologicalSorter({module: own_imports(module) for module in FILES}).prepare()


def test_an_optional_package_is_imported_by_one_module_at_most() -> None:
    """So there is one place to say which extra brings it."""
    counts = Counter(package for module in FILES for package in imported_packages(module) & OPTIONAL)
    assert {package: count for package, count in counts.items() if count > 1} == {}


def test_the_package_needs_nothing_optional() -> None:
    """Importing it imports no optional package, not even where it is installed; but redis likes opentelemetry."""
    code = f"import sys, redis.asyncio; before = {{*sys.modules}}; import {PACKAGE}; print(*{{*sys.modules}} - before)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(run.stdout.split())
    assert PACKAGE in imported
    assert imported & OPTIONAL == set()


def part_of(module: str) -> str:
    """The name under which a module has a layer: ``stores`` for ``asgi_ratelimit.stores.memory``."""
    return module.split(".")[1] if "." in module else module


def level(module: str) -> int:
    """The number of a module's layer."""
    return next(number for number, layer in enumerate(LAYERS) if part_of(module) in layer)


def own_imports(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    return {nearest_module(name) for name in imports(module) if name.split(".")[0] == PACKAGE}


def imported_packages(module: str) -> set[str]:
    """The top-level packages that a module imports."""
    return {name.split(".")[0] for name in imports(module)}


@cache
def imports(module: str) -> frozenset[str]:
    """The dotted names that a module imports, anywhere in it, but for type checkers alone."""
    tree = without_type_checking(ast.parse(FILES[module].read_text("utf-8")))
    return frozenset(name for node in ast.walk(tree) for name in imported_names(node, module))


def without_type_checking(tree: ast.Module) -> ast.Module:
    """A module without its top-level ``if TYPE_CHECKING:`` blocks."""
    body = [node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]
    return ast.Module(body, type_ignores=[])


def imported_names(node: ast.AST, module: str) -> list[str]:
    """The dotted names that an import statement in ``module`` binds; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{origin(node, module)}.{alias.name}" for alias in node.names]
    return []


def origin(node: ast.ImportFrom, module: str) -> str:
    """The module that a ``from`` names, with its dots resolved."""
    if not node.level:
        return node.module or ""
    is_package = FILES[module].name == "__init__.py"
    parents = module.split(".")[: len(module.split(".")) + is_package - node.level]
    return ".".join(filter(None, (*parents, node.module)))


def nearest_module(name: str) -> str:
    """The module in which a dotted name is found: itself, or one of those it lies in."""
    return name if name in FILES else nearest_module(name.rpartition(".")[0])
