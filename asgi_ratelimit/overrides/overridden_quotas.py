"""How an override changes the quotas of a program, and how both are shown.

No ``await``, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ..algorithms import unused
from ..clock import SystemClock
from ..decision import Decision, Take
from ..quota_text import QuotaLike, as_quotas, as_text
from ..quotas import Quota
from ..stores import Store
from .override_document import Override

ReadQuotas: TypeAlias = Callable[[QuotaLike], tuple[Quota, ...]]


def quotas_under(override: Override, own: Sequence[Quota], read: ReadQuotas = as_quotas) -> tuple[Quota, ...]:
    """The quotas of an override that is not a word, which replace the ``own`` ones; ``read`` makes them from it.

    If one quota replaces one, it keeps its name, and so the usage under that name. Other quotas have the names that
    they state, or names after their periods.
    """
    quotas = read(override.quota)
    if len(quotas) == len(own) == 1:
        return (replace(quotas[0], name=own[0].name),)
    return quotas


def limit_text(quota: Sequence[Quota] | Callable[..., Any]) -> str:
    """The limit of a program as a log line shows it: quotas, a function of the request, or no limit."""
    if callable(quota):
        return f"{getattr(quota, '__name__', type(quota).__name__)}()"
    return as_text(quota) if quota else "no limit"


def counted(decision: Decision) -> Decision:
    """A decision that is counted and not enforced: allowed, whatever the store says."""
    if decision.allowed:
        return replace(decision, shadow=True)
    return replace(decision, allowed=True, wait_us=0.0, shadow=True, id=0)


def exempt(take: Take, store: Store) -> Decision:
    """The decision of a limit that is off: allowed, and nothing is charged."""
    now = float((store.clock or SystemClock()).now_us())
    return Decision(take, True, 0.0, [unused(charge.quota, now) for charge in take.charges], now)
