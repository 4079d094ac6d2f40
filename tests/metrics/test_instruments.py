"""The instruments have names of one kind, and the docs list each of them."""

from __future__ import annotations

import re

from asgi_ratelimit.metrics.metrics_hook import INSTRUMENTS, Instrument
from tests.support.server import ROOT

ROW = re.compile(r"^\| `(asgi_ratelimit\.[\w.]+)` \| `(\w+)` \| ([\w -]+?)(?: \(gauge\))? \| ([^|]*)\|", re.MULTILINE)


def row_of(instrument: Instrument) -> tuple[str, str, str, str]:
    """What the table in the docs says of it."""
    kind = instrument.kind.replace("up_down_", "up-down ")
    return instrument.name, instrument.prometheus_name, kind, ", ".join(f"`{label}`" for label in instrument.labels)


def test_the_names_of_the_instruments() -> None:
    """Each is there once, and has the prefix of the package."""
    names = [instrument.name for instrument in INSTRUMENTS]
    assert len({*names}) == len(names)
    assert all(name.startswith("asgi_ratelimit.") for name in names)


def test_the_docs_list_all_instruments() -> None:
    """With their names for both, their kinds and labels, in this order."""
    rows = ROW.findall((ROOT / "docs/metrics.md").read_text("utf-8"))
    assert [tuple(map(str.strip, row)) for row in rows] == [*map(row_of, INSTRUMENTS)]
