"""A client whose library is missing says which extra brings it; the others work without it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
sys.modules[{library!r}] = None
import asgi_ratelimit.clients
try:
    asgi_ratelimit.clients.{name}
except ImportError as error:
    print(error)
print(asgi_ratelimit.clients.{other}.__name__)
"""


@pytest.mark.parametrize(
    ("library", "name", "other"),
    [("requests", "PacedAdapter", "PacedMiddleware"), ("aiohttp", "PacedMiddleware", "PacedAdapter")],
)
def test_the_extra_of_a_missing_library(library: str, name: str, other: str) -> None:
    """It is named where the client is used."""
    code = CODE.format(library=library, name=name, other=other)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, works = run.stdout.splitlines()
    assert message.startswith(f"{name} needs {library}")
    assert message.endswith(
        f'pip install "asgi-ratelimit-pacer[{library}]", or, in a checkout, pip install ".[{library}]"'
    )
    assert works == other
