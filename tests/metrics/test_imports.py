"""Each exporter needs its own library only, and says which extra brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
sys.modules[{library!r}] = None
import asgi_ratelimit.metrics
try:
    asgi_ratelimit.metrics.{name}
except ImportError as error:
    print(error)
print(asgi_ratelimit.metrics.{other}.__name__)
"""


@pytest.mark.parametrize(
    ("library", "name", "other"),
    [
        ("prometheus_client", "prometheus", "opentelemetry"),
        ("opentelemetry", "opentelemetry", "prometheus"),
    ],
)
def test_the_extra_of_a_missing_library(library: str, name: str, other: str) -> None:
    """It is named where the exporter is used."""
    code = CODE.format(library=library, name=name, other=other)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, works = run.stdout.splitlines()
    assert message.startswith(f'metrics.{name}() needs {library}: pip install "asgi-ratelimit-pacer[{name}]"')
    assert message.endswith(f', or, in a checkout, pip install ".[{name}]"')
    assert works == other


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module."""
    import asgi_ratelimit.metrics

    with pytest.raises(AttributeError, match="statsd"):
        asgi_ratelimit.metrics.statsd  # noqa: B018
