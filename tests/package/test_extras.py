"""What needs a library that is missing says which extra brings it; what needs another one works."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
sys.modules[{library!r}] = None
from asgi_ratelimit import clients, metrics
try:
    {missing}
except ImportError as error:
    print(error)
print("works:", {other})
"""

ADAPTER, MIDDLEWARE = "clients.PacedAdapter", "clients.PacedMiddleware"
PROMETHEUS, OPENTELEMETRY = "metrics.prometheus()", "metrics.opentelemetry()"


@pytest.mark.parametrize(
    ("library", "missing", "other"),
    [
        ("requests", ADAPTER, MIDDLEWARE),
        ("aiohttp", MIDDLEWARE, ADAPTER),
        ("prometheus_client", PROMETHEUS, OPENTELEMETRY),
        ("opentelemetry", OPENTELEMETRY, PROMETHEUS),
    ],
)
def test_the_extra_of_a_missing_library(library: str, missing: str, other: str) -> None:
    """It is named where the library is used first."""
    code = CODE.format(library=library, missing=missing, other=other)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, works = run.stdout.splitlines()
    extra = library.removesuffix("_client")
    assert message.startswith(f"{missing.removeprefix('clients.')} needs {library}")
    assert message.endswith(f'pip install "asgi-ratelimit-pacer[{extra}]", or, in a checkout, pip install ".[{extra}]"')
    assert works.startswith("works: ")
