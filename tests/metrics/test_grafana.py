"""The Grafana dashboard shows what is exported, and nothing else."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from asgi_ratelimit.metrics import INSTRUMENTS, prometheus

DASHBOARD: dict[str, Any] = json.loads(files("asgi_ratelimit.metrics").joinpath("grafana.json").read_text("utf-8"))
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
TARGETS = [target for panel in PANELS.values() for target in panel["targets"]]
VARIABLES = {variable["name"] for variable in DASHBOARD["templating"]["list"]}

METRIC = re.compile(r"\b(asgi_ratelimit_\w+)(?:\{([^}]*)\})?")
# The labels of an aggregation, and what is aggregated.
GROUPED = re.compile(r"\bby \(([^)]*)\) \(([^()]*\([^()]*\)|[^()]*)\)")


def exported() -> dict[str, set[str]]:
    """The labels of each sample that the real library exposes, once everything was recorded."""
    registry = CollectorRegistry()
    hook: Any = prometheus(registry)
    for instrument in INSTRUMENTS:
        hook.record(instrument.short_name, 1.0, *instrument.labels)
    return {sample.name: {*sample.labels} for family in registry.collect() for sample in family.samples}


def labels_in(matchers: str | None) -> set[str]:
    """The labels that a selector names."""
    return {re.split(r"[=!]", each)[0].strip() for each in (matchers or "").split(",") if each.strip()}


def names(text: str) -> set[str]:
    return {each.strip() for each in text.split(",")}


@pytest.mark.parametrize("target", TARGETS, ids=[target["expr"] for target in TARGETS])
def test_an_expression_names_what_is_exported(target: dict[str, str]) -> None:
    """Its metrics exist, with the labels that it selects and groups by; its legend shows labels that are left."""
    samples, expression = exported(), target["expr"]
    metrics = METRIC.findall(expression)
    assert metrics
    for metric, matchers in metrics:
        assert metric in samples
        assert labels_in(matchers) <= samples[metric]
    groups = GROUPED.findall(expression)
    assert len(groups) == expression.count(" by (")
    for labels, aggregated in groups:
        ((metric, _),) = METRIC.findall(aggregated)
        assert names(labels) <= samples[metric]
        assert names(", ".join(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) or labels) <= names(labels)
    assert expression.count("(") == expression.count(")")
    assert {*re.findall(r"\$(?!__)(\w+)", expression)} <= VARIABLES


def test_every_instrument_is_shown() -> None:
    """In some panel."""
    shown = {metric for target in TARGETS for metric, _ in METRIC.findall(target["expr"])}
    for instrument in INSTRUMENTS:
        assert any(metric.startswith(instrument.prometheus_name) for metric in shown), instrument.name


def test_the_variables_ask_for_what_is_exported() -> None:
    """The rules to choose from are those of a metric that exists."""
    queries = [each["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    ((metric, label),) = [re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups() for query in queries]  # type: ignore[union-attr]  # it is one
    assert label in exported()[metric]
