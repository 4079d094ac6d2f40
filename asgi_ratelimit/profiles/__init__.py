"""What services report about themselves: the usage of answers, and estimates of requests that learn from it."""

from .estimates import anthropic_estimate, model, openai_estimate
from .learning import LearnedEstimate
from .usage import anthropic_usage, openai_usage

__all__ = [
    "LearnedEstimate",
    "anthropic_estimate",
    "anthropic_usage",
    "model",
    "openai_estimate",
    "openai_usage",
]
