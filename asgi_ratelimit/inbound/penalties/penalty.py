"""Penalties: when a key is blocked, and for how long."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real
from typing import Final

from ...argument_errors import shows_use
from ...errors import ConfigurationError, QuotaError
from ...quota_text import parse_period
from ...quotas import MAX_PERIOD, Quota, RollingWindow, fitting_parts, whole_us

LONGEST: Final = "1 day"
"""The longest block by default, unless the first one is longer."""


@shows_use('Penalty("10 minutes", after=5)')
@dataclass(frozen=True, slots=True)
class Penalty:
    """Block a key for ``block_for`` once it has been refused ``after`` times ``within`` a time.

    Durations are texts such as ``"10 minutes"``, or seconds; ``within`` is by default as long as the block. With a
    ``growth`` of 2, each further block is twice as long, up to ``longest``; one earlier block a day is forgotten.
    Raises ``ConfigurationError`` for invalid arguments.
    """

    block_for: str | float
    _: KW_ONLY
    after: int = 1
    within: str | float | None = None
    growth: float = 1.0
    longest: str | float = LONGEST

    shortest_s: float = field(init=False, repr=False, compare=False)
    """The first block in seconds."""
    longest_s: float = field(init=False, repr=False, compare=False)
    """The longest block in seconds."""
    strikes: Quota | None = field(init=False, repr=False, compare=False)
    """The quota of refusals that go unpunished; ``None`` if the first one is punished."""

    def __post_init__(self) -> None:
        shortest = seconds_of("block_for", self.block_for)
        within = shortest if self.within is None else seconds_of("within", self.within)
        _require_numbers(self.after, self.growth)
        strikes = None
        if self.after > 1:
            strikes = RollingWindow(self.after - 1, within, fitting_parts(whole_us(within)), name="penalty-strikes")
        longest = seconds_of("longest", self.longest)
        if longest < shortest and self.longest != LONGEST:
            raise ConfigurationError(
                f"longest must be at least block_for, {self.block_for!r}, not {self.longest!r}: "
                'Penalty("10 minutes", growth=2, longest="1 day")'
            )
        object.__setattr__(self, "shortest_s", shortest)
        object.__setattr__(self, "longest_s", max(shortest, longest))
        object.__setattr__(self, "strikes", strikes)

    def seconds(self, earlier: int) -> float:
        """The length of a block after this many earlier ones."""
        return min(self.shortest_s * self.growth**earlier, self.longest_s)


def checked_penalty(penalty: Penalty | None, quota: object) -> Penalty | None:
    """A penalty, or ``None``; ``ConfigurationError`` for anything else, and for a penalty without a quota."""
    if penalty is None or (isinstance(penalty, Penalty) and quota is not None):
        return penalty
    if isinstance(penalty, Penalty):
        raise ConfigurationError(f'{penalty!r} has no quota whose refusals it could count: quota="3/minute"')
    raise ConfigurationError(f'penalty is a Penalty, not {penalty!r}: penalty=Penalty("10 minutes", after=5)')


def seconds_of(what: str, duration: str | float) -> float:
    """The seconds of a duration, an argument named ``what``; ``ConfigurationError`` for an invalid one."""
    try:
        seconds = parse_period(duration) if isinstance(duration, str) else duration
    except QuotaError as error:
        raise ConfigurationError(f'{what}: {duration!r} is not a duration: {what}="10 minutes", or seconds') from error
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, Real)) or not 0.1 <= seconds <= MAX_PERIOD:
        raise ConfigurationError(f'{what} must be from 0.1 s to 400 days, not {duration!r}: {what}="10 minutes"')
    return float(seconds)


def _require_numbers(after: int, growth: float) -> None:
    if not isinstance(after, (int, Integral)) or isinstance(after, bool) or after < 1:
        raise ConfigurationError(f'after must be a number of refusals, not {after!r}: Penalty("10 minutes", after=5)')
    if not isinstance(growth, (int, float, Real)) or isinstance(growth, bool) or not 1 <= growth <= 1000:
        raise ConfigurationError(f'growth must be from 1 to 1000, not {growth!r}: Penalty("10 minutes", growth=2)')
