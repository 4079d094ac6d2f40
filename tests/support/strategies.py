"""Random quotas, costs and steps of time, for the properties that must hold whatever happens."""

from __future__ import annotations

from hypothesis import strategies as st

from asgi_ratelimit.quotas import FixedWindow, Quota, RollingWindow, TokenBucket

FACTORS = st.sampled_from([1.0, 0.5, 0.1, 0.9, 1 / 3]) | st.floats(0.01, 1.0)
PERIODS = st.sampled_from([1.0, 60.0, 0.1, 0.007, 3600.0])
RATES = st.sampled_from([1, 3, 10, 100, 0.5, 2.5, 1 / 3, 1000]) | st.floats(0.1, 2000.0)
LIMITS = st.sampled_from([1, 3, 10, 100, 2.5]) | st.floats(1.0, 50.0)
BURSTS = st.sampled_from([None, 1, 2, 5, 10, 1.5, 2.75]) | st.floats(1.0, 50.0)
PARTS = st.sampled_from([1, 2, 5, 10])
WAITS = st.sampled_from([0.0, 0.01, 0.3, 1.0, 100.0, float("inf")])


def token_buckets(name: str) -> st.SearchStrategy[TokenBucket]:
    """Token buckets of one name, with numbers that are whole and numbers that are not."""
    return st.builds(TokenBucket, RATES, PERIODS, BURSTS, FACTORS, st.just(name))


def windows(name: str) -> st.SearchStrategy[FixedWindow | RollingWindow]:
    """Fixed and rolling windows of one name."""
    fixed = st.builds(FixedWindow, LIMITS, PERIODS, st.just(name))
    return fixed | st.builds(RollingWindow, LIMITS, PERIODS, PARTS, st.just(name))


def quotas(name: str) -> st.SearchStrategy[Quota]:
    """Quotas of any kind and one name."""
    return token_buckets(name) | windows(name)


def costs(at_most: float) -> st.SearchStrategy[float]:
    """Units from next to nothing to ``at_most``."""
    return st.sampled_from([1.0, at_most, at_most / 2]) | st.floats(at_most / 1000, at_most)


def steps_us(quota: Quota) -> st.SearchStrategy[int]:
    """Microseconds between two takes, around the time that a unit of the quota takes to come back."""
    unit = max(2, round(quota.period_us / quota.limit))
    around = st.integers(0, 2 * unit) | st.integers(unit - 1, unit + 1) | st.integers(0, 20 * unit)
    return st.just(0) | around | st.integers(0, round(quota.period_us))
