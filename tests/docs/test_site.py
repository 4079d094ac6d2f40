"""The site holds everything: each page is in its navigation, and each public name in its reference."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.package.test_exports import NAMES
from tests.support.server import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
REFERENCE = "\n".join(page.read_text("utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
DOCUMENTED = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)
MENTIONED = set(re.findall(r"`(\w+)`", REFERENCE))


def test_every_page_is_in_the_navigation() -> None:
    """Once, and nothing else is."""
    config = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    listed = [str(DOCS / page) for page in pages_in(config["project"]["nav"])]
    assert sorted(listed) == sorted(str(page) for page in PAGES)


def pages_in(entries: list[dict[str, Any]]) -> Iterator[str]:
    """The pages of a navigation, sections included."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from pages_in(value)


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    """With its docstring, or, for the profiles of APIs, in the list of them."""
    documented = {name.rpartition(".")[2] for name in DOCUMENTED if name.startswith(f"{module}.")}
    elsewhere = MENTIONED if module == "asgi_ratelimit.profiles" else set()
    missing = sorted(set(NAMES[module].split()) - documented - elsewhere)
    assert not missing, f"docs/reference lacks {[f'::: {module}.{name}' for name in missing]}"
