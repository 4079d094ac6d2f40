"""Estimates of a request's cost before it is sent: functions for ``cost`` that read its JSON, and what they learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from ..decision import checked_actual
from ..errors import ConfigurationError
from ..quotas import MAX_UNITS
from .usage import json_object

BYTES_PER_TOKEN = 4
"""A token is about four bytes of text: four letters of English, or one and a third of Chinese."""

TOKENS_OF_MEDIA = 1_500
"""The tokens that an image or a file in the body counts as: about the most that a vendor counts for an image."""

TOKENS_OF_OUTPUT = 1_024
"""The output tokens of a request that does not limit them."""


def openai_estimate(request: Any) -> dict[str, float]:
    """What a request to OpenAI will cost at most, ``{"requests": 1, "tokens": 1337}``.

    That is a token for every four bytes of text in its body and for each number in a list (the ids of tokens), and the
    output that it allows: ``max_completion_tokens``, ``max_output_tokens`` or ``max_tokens``, or else 1,024, ``n``
    times. Embeddings have no output.
    """
    body = _body(request)
    output = _first_number(body, "max_completion_tokens", "max_output_tokens", "max_tokens")
    if output is None:
        output = 0 if str(request.url).partition("?")[0].endswith("/embeddings") else TOKENS_OF_OUTPUT
    return {"requests": 1, "tokens": max(1, _input_tokens(body) + output * (_first_number(body, "n") or 1))}


def anthropic_estimate(request: Any) -> dict[str, float]:
    """What a request to Anthropic will cost at most, ``{"requests": 1, "input_tokens": 313, "output_tokens": 1024}``.

    That is a token for every four bytes of text in its body, and its ``max_tokens``.
    """
    body = _body(request)
    output = _first_number(body, "max_tokens") or TOKENS_OF_OUTPUT
    return {"requests": 1, "input_tokens": max(1, _input_tokens(body)), "output_tokens": output}


def model(request: Any) -> str:
    """The model that a request names in its body, or ``""`` if it names none; vendors limit each model separately."""
    name = _body(request).get("model")
    return name if isinstance(name, str) else ""


def _body(request: Any) -> dict[str, Any]:
    """The JSON body of a request of httpx, httpx2, requests or aiohttp; empty for any other body."""
    try:
        content = request.content
    except Exception:  # noqa: BLE001  # a missing attribute, or a body that was not read: each client has its own error
        content = getattr(request, "body", b"")
    if not isinstance(content, (bytes, str)):
        content = getattr(content, "_value", b"")  # a payload of aiohttp, of bytes
    return (json_object(content) if isinstance(content, (bytes, str)) else None) or {}


def _first_number(body: Mapping[str, Any], *names: str) -> int | None:
    numbers = (body.get(name) for name in names)
    return next((number for number in numbers if type(number) is int and number > 0), None)


def _input_tokens(body: Mapping[str, Any]) -> int:
    """The tokens of all texts in a body, names included, and of its images and files."""
    size, tokens, parts = 0, 0, [body]
    while parts:
        part: Any = parts.pop()
        if isinstance(part, dict):
            is_media = _is_base64(part.get("data"))
            tokens += TOKENS_OF_MEDIA * is_media
            parts += [*part, *(value for name, value in part.items() if not (is_media and name == "data"))]
        elif isinstance(part, list):
            tokens += sum(type(each) in (int, float) for each in part)
            parts += part
        elif isinstance(part, str) and part.startswith("data:") and _is_base64(part.partition(";base64,")[2]):
            tokens += TOKENS_OF_MEDIA
        elif isinstance(part, str):
            size += len(part.encode("utf-8", "surrogatepass"))
    return math.ceil(size / BYTES_PER_TOKEN) + tokens


def _is_base64(text: object) -> bool:
    """Whether a text is bytes in base64, which has no spaces; what people write has."""
    return isinstance(text, str) and text.isascii() and " " not in text and text != ""


Cost: TypeAlias = float | Mapping[str, float]

ALL = ""
"""The name under which a cost without names, one number for all quotas, is learned."""

LARGEST_RATIO = 1_000.0
"""The largest ratio that counts: an estimate that is further off is a mistake, not a habit."""


class Ratio(NamedTuple):
    """The moving average of the ratio of actual cost to estimate, its mean deviation, and the number of ratios."""

    average: float = 1.0
    deviation: float = 0.0
    samples: int = 1

    def after(self, ratio: float, weight: float) -> Ratio:
        """The averages after one more ratio; the first ones weigh more, so that assumptions are soon forgotten."""
        weight = max(weight, 1.0 / (self.samples + 1))
        error = ratio - self.average
        deviation = self.deviation + weight * (abs(error) - self.deviation)
        return Ratio(self.average + weight * error, deviation, self.samples + 1)


class LearnedEstimate:
    """A cost for requests: another estimate, times the ratio of actual cost to estimate of earlier requests.

    ``cost = estimate * (ratio + deviations * deviation)``, at least 1 unit, for each quota that the estimate names,
    where ``ratio`` is a moving average over the requests with the same ``by``, by default those to the same model, and
    ``deviation`` is the moving average of the distance from it (as in RFC 6298). A new ratio counts ``weight``, and
    more if it is among the first ones. Until something is learned, the cost is the estimate.

    Pass it as ``cost`` of a transport with ``settle``, which calls ``learn``. ``estimate`` and ``by`` are functions of
    the request. The ``max_groups`` most recently learned values of ``by`` are kept. Raises ``ConfigurationError``.
    """

    def __init__(
        self,
        estimate: Callable[[Any], Cost],
        *,
        by: Callable[[Any], Hashable] = model,
        weight: float = 0.1,
        deviations: float = 1.0,
        max_groups: int = 1_000,
    ) -> None:
        _require(callable(estimate), "estimate", estimate, "a function of the request: estimate=openai_estimate")
        _require(callable(by), "by", by, "a function of the request: by=model")
        _require(_is_number(weight) and 0 < weight <= 1, "weight", weight, "above 0 and at most 1: weight=0.1")
        _require(_is_number(deviations) and 0 <= deviations <= 100, "deviations", deviations, "0 to 100: deviations=1")
        _require(type(max_groups) is int and max_groups > 0, "max_groups", max_groups, "an integer: max_groups=1000")
        self._estimate = estimate
        self._by = by
        self._weight = weight
        self._deviations = deviations
        self._max_groups = max_groups
        self._ratios: dict[Hashable, dict[str, Ratio]] = {}
        self._lock = Lock()

    def __call__(self, request: Any) -> Cost:
        """The cost to charge for a request. Raises ``ValueError`` for an estimate that is not a number from 0 up."""
        estimate = self._estimate(request)
        group = self._by(request)
        with self._lock:
            ratios = self._ratios.get(group, {})
        costs = {name: self._cost(units, ratios.get(name, Ratio())) for name, units in _by_name(estimate).items()}
        return costs if isinstance(estimate, Mapping) else costs[ALL]

    def learn(self, request: Any, charged: Cost, actual: Cost) -> None:  # noqa: ARG002  # others learn from it
        """Learn the actual cost of a request; ignore an ``actual`` that is not a number or names other quotas."""
        group = self._by(request)
        estimates = _by_name(self._estimate(request))
        units = {name: _actual(actual, name) for name in estimates}
        with self._lock:
            ratios = dict(self._ratios.pop(group, {}))
            for name, real in units.items():
                if real is not None:
                    ratio = min(real / _at_least_one(estimates[name]), LARGEST_RATIO)
                    ratios[name] = ratios.get(name, Ratio()).after(ratio, self._weight)
            self._ratios[group] = ratios
            if len(self._ratios) > self._max_groups:
                del self._ratios[next(iter(self._ratios))]

    def _cost(self, estimate: float, ratio: Ratio) -> float:
        factor = ratio.average + self._deviations * ratio.deviation
        return min(max(1.0, _at_least_one(estimate) * factor), MAX_UNITS)


def _by_name(cost: Cost) -> Mapping[str, float]:
    return cost if isinstance(cost, Mapping) else {ALL: cost}


def _actual(actual: Cost, name: str) -> float | None:
    """The actual units under a name: all units of a cost without names. For ``ALL``, the largest of the names."""
    try:
        if not isinstance(actual, Mapping):
            return checked_actual(actual)
        if name == ALL:
            return max(map(checked_actual, actual.values()), default=None)
        return checked_actual(actual[name]) if name in actual else None
    except ValueError:
        return None


def _at_least_one(estimate: float) -> float:
    return max(1.0, checked_actual(estimate))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(valid: bool, what: str, value: object, expected: str) -> None:
    if not valid:
        raise ConfigurationError(f"{what} must be {expected}, not {value!r}")
