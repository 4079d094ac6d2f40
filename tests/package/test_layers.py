"""The package is built in layers, and imports point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter

from tests.support.server import ROOT

PACKAGE = "asgi_ratelimit"
FOLDER = ROOT / PACKAGE

# From the bottom to the top; a name is that of a module or of a package in ``asgi_ratelimit``.
LAYERS = (
    {"clock", "buckets"},
    {"errors", "logs"},
    {"background", "quotas", "keys"},
    {"algorithms", "quota_text"},
    {"decision"},
    {"profiles", "stores"},
    {"headers", "waiting"},
    {"leases"},
    {"counts"},
    {"hooks", "overrides"},
    {"limiter", "metrics"},
    {"inbound", "outbound"},
    {"clients", "dashboard", "testing"},
    {"tools"},
    {PACKAGE, "__main__"},
)

OPTIONAL = {"aiohttp", "fastapi", "httpx", "httpx2", "hypothesis", "opentelemetry", "prometheus_client", "requests"}
OPTIONAL |= {"uvicorn"}

# Installed with the package, but imported only where a store is on Redis.
REDIS = {"redis", "hiredis"}

# Public modules besides the package itself.
PUBLIC = ("clients", "dashboard", "hooks", "keys", "metrics", "profiles", "testing", "tools")

# Every module of the package, and its file.
FILES = {
    ".".join((PACKAGE, *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(FOLDER.rglob("*.py"))
}

# Every package, the outermost one included, and its folder.
FOLDERS = {module: path.parent for module, path in FILES.items() if path.name == "__init__.py"}


def test_each_module_has_a_layer() -> None:
    """A new module or package must be given a layer."""
    assert [module for module in FILES if not any(part_of(module) in layer for layer in LAYERS)] == []


def test_imports_point_down() -> None:
    """A module imports only from its own package, from lower layers, and what a package beside it exports."""
    refused = {module: {name for name in own_imports(module) if not is_allowed(module, name)} for module in FILES}
    assert {module: names for module, names in refused.items() if names} == {}, "above it, or inside of one beside it"


def test_no_imports_form_a_circle() -> None:
    """Types included; a circle is the error that names it."""
    TopologicalSorter({module: own_imports(module) - {module} for module in FILES}).prepare()


def test_no_private_name_is_imported() -> None:
    """What begins with an underscore is for its own module."""
    own = [(module, name) for module in FILES for name in imports(module) if name.split(".")[0] == PACKAGE]
    assert [(module, name) for module, name in own if has_private_part(name)] == []


def test_an_optional_package_is_imported_by_one_module_at_most() -> None:
    """So there is one place to say which extra brings it."""
    counts = Counter(package for module in FILES for package in imported_packages(module) & OPTIONAL)
    assert {package: count for package, count in counts.items() if count > 1} == {}


def test_only_the_store_on_redis_imports_redis() -> None:
    """So the memory store works without it."""
    importers = {module for module in FILES if imported_packages(module) & REDIS}
    assert {module for module in importers if not module.startswith(f"{PACKAGE}.stores.redis.")} == set()


# What each module imports that those before it have not, the package itself being the first, as it always is.
IMPORTING = """
import importlib, sys
for module in sys.argv[1:]:
    before = {*sys.modules}
    importlib.import_module(module)
    print(module, *{*sys.modules} - before)
"""


def test_importing_the_package_imports_nothing_optional_and_no_redis() -> None:
    """Importing it, or a public module, imports no optional package, not even where that is installed."""
    modules = [PACKAGE, *[f"{PACKAGE}.{part}" for part in PUBLIC]]
    run = subprocess.run([sys.executable, "-c", IMPORTING, *modules], capture_output=True, text=True, check=True)
    imported = {module: set(names) for module, *names in map(str.split, run.stdout.splitlines())}
    assert [*imported] == modules
    assert PACKAGE in imported[PACKAGE]
    assert {module: names for module, names in imported.items() if names & (OPTIONAL | REDIS)} == {}


def is_allowed(module: str, imported: str) -> bool:
    """Whether ``module`` may import from ``imported``: beside it, only from the ``__init__`` of a package."""
    if part_of(imported) == part_of(module):
        return True
    if level(imported) == level(module):
        return imported in FOLDERS and imported.count(".") == 1
    return level(imported) < level(module)


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
    """The dotted names that a module imports, anywhere in it, for type checkers as well."""
    tree = ast.parse(FILES[module].read_text("utf-8"))
    return frozenset(name for node in ast.walk(tree) for name in imported_names(node, module))


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
    parents = module.split(".")[: len(module.split(".")) + (module in FOLDERS) - node.level]
    return ".".join(filter(None, (*parents, node.module)))


def nearest_module(name: str) -> str:
    """The module in which a dotted name is defined: itself, or one of those it lies in."""
    return name if name in FILES else nearest_module(name.rpartition(".")[0])


def has_private_part(name: str) -> bool:
    """Whether any part of a dotted name begins with an underscore, ``__main__`` and its like apart."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
