"""When to come back, in the forms that services send."""

from __future__ import annotations

import httpx
import pytest

from asgi_ratelimit.outbound.refusals import pause_of

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT

FORMS = [
    ({"retry-after": "120"}, 120.0),
    ({"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT"}, 30.0),
    ({"retry-after": "Sun, 06 Nov 1994 09:50:07 GMT", "date": "Sun, 06 Nov 1994 09:49:37 GMT"}, 30.0),
    ({"retry-after": "Sun, 06 Nov 1994 08:50:07 GMT", "date": "yesterday"}, 30.0),
]

INVALID = ["", "soon", "-1", "nan", "inf", "1e9", "99999999999", "Sun, 06 Nov 2094 08:49:37 GMT", "1, 2"]
INVALID += ["1_0", "0_5.0_1", "１０", "٣", "²", "infinity", "1" * 200]


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(("headers", "seconds"), FORMS, ids=[" ".join(headers.values()) for headers, _ in FORMS])
def test_forms_of_retry_after(status: int, headers: dict[str, str], seconds: float) -> None:
    """Dates count from the date of the answer."""
    assert pause_of(status, httpx.Headers(headers), NOW) == seconds


@pytest.mark.parametrize("text", INVALID)
def test_invalid_values_are_ignored(text: str) -> None:
    """As are pauses of more than a day, and what only Python takes for a number."""
    assert pause_of(429, {"retry-after": text}, NOW) is None
