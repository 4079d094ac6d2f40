"""What requests cost: estimates before they are sent, which can learn, and the usage that their answers report.

Functions for ``cost`` and ``settle``. No bytes raise an exception, and every function takes time that grows no faster
than the length of the body.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from ..decision import checked_actual
from ..errors import ConfigurationError, require_number, shows_use
from ..quotas import MAX_UNITS

# A token is about four bytes of text: four letters of English, or one and a third of Chinese.
BYTES_PER_TOKEN = 4

# The tokens that an image or a file in the body counts as: about the most that a vendor counts for an image.
TOKENS_OF_MEDIA = 1_500

# The output tokens of a request that does not limit them.
TOKENS_OF_OUTPUT = 1_024


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


# Units by the name of the quota; quotas that are not named keep their charge.
Usage: TypeAlias = Mapping[str, int]


def openai_usage(answer: Any) -> Usage | None:
    """The tokens that OpenAI's answer says it has used, ``{"tokens": 313}``, or ``None`` if it does not say.

    It reads ``usage`` of chat completions, responses, embeddings and other answers, and of services that copy them.
    The stream of a chat completion has ``usage`` only if the request asks for it, ``stream_options={"include_usage":
    True}``. All tokens count, because those from the prompt cache are limited as well. A refused request has used none.
    """
    if 400 <= answer.status_code < 500:
        return {"tokens": 0}
    totals = (_units(_usage(entry, "response").get("total_tokens")) for entry in _objects(answer))
    return next(({"tokens": total} for total in totals if total is not None), None)


openai_usage.reads_body = True  # type: ignore[attr-defined]


def anthropic_usage(answer: Any) -> Usage | None:
    """The tokens that Anthropic's answer says it has used, ``{"input_tokens": 2000, "output_tokens": 313}``.

    Input that was written to the prompt cache counts; input that was read from it does not, as for the limits of all
    current models. A stream that is cut reports only its input, and ``None`` stands for an answer that reports nothing.
    A refused request has used none.
    """
    if 400 <= answer.status_code < 500:
        return {"input_tokens": 0, "output_tokens": 0}
    used: dict[str, int] = {}
    for entry in _objects(answer):  # the last one first, because it is up to date
        usage = _usage(entry, "message")
        uncached, output = _units(usage.get("input_tokens")), _units(usage.get("output_tokens"))
        if uncached is not None:
            used.setdefault("input_tokens", uncached + (_units(usage.get("cache_creation_input_tokens")) or 0))
        if output is not None and entry.get("type") != "message_start":  # there, it is only the beginning
            used.setdefault("output_tokens", output)
    return used or None


anthropic_usage.reads_body = True  # type: ignore[attr-defined]


def _usage(entry: Mapping[str, Any], envelope: str) -> Mapping[str, Any]:
    """The usage of an object, or of the one within its envelope."""
    inner = entry.get(envelope)
    usage = (inner if isinstance(inner, dict) else entry).get("usage")
    return usage if isinstance(usage, dict) else {}


def _units(number: object) -> int | None:
    """A whole number of units, or ``None`` for anything else."""
    return number if type(number) is int and 0 <= number <= MAX_UNITS else None


def _objects(answer: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects of an answer that mention their usage, the last one first: the body, or its events."""
    content = decoded(answer.body, answer.headers.get("content-encoding", ""))
    end = b"{" + content[content.rfind(b'"usage"') :]  # of a long body, only the beginning and the end are kept
    texts = [content, end] if content.lstrip()[:1] == b"{" else _events(content)
    return filter(None, map(json_object, texts))


# The most bytes to which a compressed body is decoded.
MAX_CONTENT = 16 * 1024 * 1024

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # of zlib


def decoded(body: bytes, encoding: str, most: int = MAX_CONTENT) -> bytes:
    """A body without its content encoding, as far as it has come, and ``most`` bytes of it.

    A body that does not match the encoding stays unchanged: some clients have already decoded it, and others know
    encodings that the standard library does not.
    """
    window_bits = _WINDOW_BITS.get(encoding.strip().lower())
    if window_bits is None:
        return body
    try:
        return zlib.decompressobj(window_bits).decompress(body, most)
    except zlib.error:
        return body


def json_object(text: bytes | str) -> dict[str, Any] | None:
    """A JSON object, or ``None`` for anything else."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _events(content: bytes) -> Iterator[bytes]:
    """The data of the server-sent events that mention usage, the last one first."""
    events = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    for event in reversed(events):
        if b'"usage"' in event:
            yield b"\n".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))


Cost: TypeAlias = float | Mapping[str, float]

# The name under which a cost without names is learned: one number for all quotas, the largest of what each cost.
ALL = ""

# The largest ratio that counts: an estimate that is further off is a mistake, not a habit.
LARGEST_RATIO = 1_000.0


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


EXAMPLE = "LearnedEstimate(openai_estimate, by=model, weight=0.1, deviations=1, max_groups=1000)"


@shows_use(EXAMPLE)
@dataclass(eq=False)
class LearnedEstimate:
    """A cost for requests: another estimate, times the ratio of actual cost to estimate of earlier requests.

    ``cost = estimate * (ratio + deviations * deviation)``, at least 1 unit, for each quota that the estimate names,
    where ``ratio`` is a moving average over the requests with the same ``by``, by default those to the same model, and
    ``deviation`` is the moving average of the distance from it (as in RFC 6298). A new ratio counts ``weight``, and
    more if it is among the first ones. Until something is learned, the cost is the estimate.

    Pass it as ``cost`` of a transport with ``settle``, which calls ``learn``. ``estimate`` and ``by`` are functions of
    the request. The ``max_groups`` most recently learned values of ``by`` are kept. Raises ``ConfigurationError``.
    """

    estimate: Callable[[Any], Cost]
    _: KW_ONLY
    by: Callable[[Any], Hashable] = model
    weight: float = 0.1
    deviations: float = 1.0
    max_groups: int = 1_000
    _ratios: dict[Hashable, dict[str, Ratio]] = field(default_factory=dict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (callable(self.estimate) and callable(self.by)):
            raise ConfigurationError(f"estimate and by are functions, not {self.estimate!r} and {self.by!r}: {EXAMPLE}")
        require_number("weight is above 0 and at most 1", self.weight, math.ulp(0.0), 1, EXAMPLE)
        require_number("deviations are from 0 to 100", self.deviations, 0, 100, EXAMPLE)
        require_number("max_groups is at least 1", self.max_groups, 1, math.inf, EXAMPLE, int)

    def __call__(self, request: Any) -> Cost:
        """The cost to charge for a request. Raises ``ValueError`` for an estimate that is not a number from 0 up."""
        estimate, group = self.estimate(request), self.by(request)
        with self._lock:
            ratios = self._ratios.get(group, {})
        costs = {name: self._cost(units, ratios.get(name, Ratio())) for name, units in _by_name(estimate).items()}
        return costs if isinstance(estimate, Mapping) else costs[ALL]

    def learn(self, request: Any, charged: Cost, actual: Cost) -> None:  # noqa: ARG002  # others learn from it
        """Learn the actual cost of a request; a quota that ``actual`` does not name learns nothing.

        Raises ``ValueError`` for a cost that is not a number from 0 up.
        """
        group, estimates, units = self.by(request), _by_name(self.estimate(request)), _by_name(actual)
        if ALL in estimates and units:
            units = {ALL: max(units.values())}
        named = {name: units.get(name, units.get(ALL)) for name in estimates}
        costs = {name: checked_actual(real) for name, real in named.items() if real is not None}
        new = {name: min(real / _at_least_one(estimates[name]), LARGEST_RATIO) for name, real in costs.items()}
        with self._lock:
            ratios = dict(self._ratios.pop(group, {}))
            for name, ratio in new.items():
                ratios[name] = ratios.get(name, Ratio()).after(ratio, self.weight)
            self._ratios[group] = ratios
            if len(self._ratios) > self.max_groups:
                del self._ratios[next(iter(self._ratios))]

    def _cost(self, estimate: float, ratio: Ratio) -> float:
        factor = ratio.average + self.deviations * ratio.deviation
        return min(max(1.0, _at_least_one(estimate) * factor), MAX_UNITS)


def _by_name(cost: Cost) -> Mapping[str, float]:
    return cost if isinstance(cost, Mapping) else {ALL: cost}


def _at_least_one(estimate: float) -> float:
    return max(1.0, checked_actual(estimate))
