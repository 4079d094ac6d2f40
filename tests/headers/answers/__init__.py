"""Answers of real APIs, as their documentation shows them or as they were captured, and what they mean.

All are of the same moment, ``DATE``, and times in them were moved to fit.
"""

from __future__ import annotations

from tests.headers.answers import businesses, language_models, odd, platforms, standards
from tests.headers.answers.example import DATE, SERVER_NOW, Example

__all__ = ["DATE", "EXAMPLES", "SERVER_NOW", "Example"]

EXAMPLES: dict[str, Example] = {
    **standards.EXAMPLES,
    **platforms.EXAMPLES,
    **language_models.EXAMPLES,
    **businesses.EXAMPLES,
    **odd.EXAMPLES,
}
"""By a name that says what is special about each."""
