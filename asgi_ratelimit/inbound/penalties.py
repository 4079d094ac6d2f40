"""Who is blocked: penalties, and their blocks.

A key that is refused again and again is blocked for a while. It has three buckets beside those of its quotas, so
processes share them and no store needs to know about them:

* ``penalty-block`` is checked in the same take as every request that may be blocked, at almost no cost. A block is one
  charge that is larger than the bucket: the level stays above the burst for as long as the block lasts.
* ``penalty-strikes`` counts refusals, and only those of a key that is not blocked, so their number is bounded.
* ``penalty-blocks`` counts earlier blocks if blocks grow, and forgets one of them a day.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Final

from ..buckets import DEFAULT_NAME, as_key, bucket, bucket_prefix
from ..decision import Charge, Decision, Take, without
from ..errors import ConfigurationError, StoreError, StoreUnavailable, checked_name, require_number, shows_use
from ..keys.addresses import keys_named
from ..logs import FailureLog, logger
from ..quota_text import parse_period
from ..quotas import MAX_PERIOD, MAX_UNITS, Quota, RollingWindow, TokenBucket, fitting_parts
from ..stores import Store, store_of_limits

LONGEST: Final = "1 day"  # the longest block by default, unless the first one is longer


# Penalties as users write them


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

    def __post_init__(self) -> None:
        use = 'Penalty("10 minutes", after=5, growth=2, longest="1 day")'
        shortest, longest = seconds_of("block_for", self.block_for), seconds_of("longest", self.longest)
        seconds_of("within", self.block_for if self.within is None else self.within)
        require_number("after must be a number of refusals", self.after, 1, MAX_UNITS, use, Integral)
        require_number("growth must be from 1 to 1000", self.growth, 1, 1000, use)
        if longest < shortest and self.longest != LONGEST:
            problem = f"longest must be at least block_for, {self.block_for!r}, not {self.longest!r}"
            raise ConfigurationError(f"{problem}: {use}")

    @property
    def strikes(self) -> Quota | None:
        """The quota of refusals that go unpunished; ``None`` if the first one is punished."""
        if self.after == 1:
            return None
        within = seconds_of("within", self.block_for if self.within is None else self.within)
        return RollingWindow(self.after - 1, within, fitting_parts(within), name="penalty-strikes")

    def seconds(self, earlier: int) -> float:
        """The length of a block after this many earlier ones."""
        shortest = seconds_of("block_for", self.block_for)
        return min(shortest * self.growth**earlier, max(shortest, seconds_of("longest", self.longest)))


def require_penalty(penalty: Penalty | None, quota: object) -> None:
    """Raise ``ConfigurationError`` for what is no penalty, nor ``None``, and for a penalty without a quota."""
    if not isinstance(penalty, Penalty | None):
        raise ConfigurationError(f'penalty is a Penalty, not {penalty!r}: penalty=Penalty("10 minutes", after=5)')
    if penalty is not None and quota is None:
        raise ConfigurationError(f'{penalty!r} has no quota whose refusals it could count: quota="3/minute"')


def seconds_of(what: str, duration: str | float) -> float:
    """The seconds of a duration, an argument named ``what``; ``ConfigurationError`` for an invalid one."""
    use = f'{what}="10 minutes"'
    try:
        seconds = parse_period(duration) if isinstance(duration, str) else duration
    except ValueError as error:  # a ``QuotaError``
        raise ConfigurationError(f"{what}: {duration!r} is not a duration: {use}") from error
    return float(require_number(f"{what} must be from 0.1 s to 400 days", seconds, 0.1, MAX_PERIOD, use))


# Buckets of blocks


RATE: Final = 1024.0  # units that a block drains in a second

# Its level is above the burst while a key is blocked; it drains from full to empty in less than a millisecond
BLOCK = TokenBucket(RATE, 1.0, burst=1, name="penalty-block")

EARLIER_BLOCKS = TokenBucket(1, 86_400.0, burst=32, name="penalty-blocks")

# Units that a check for a block takes: so few that thousands of checks at once do not fill the bucket
CHECK_COST: Final = 1 / 16_384

# A bucket is identified by the name of its quota, so this one is enough to reset strikes
STRIKES = RollingWindow(1, 1, 1, name="penalty-strikes")

# Seconds after which the bucket of a key is certainly empty if it is not blocked, and not empty if it is blocked
_SOON = 0.005


@dataclass(slots=True)
class Strike(Charge):
    """A charge for one refusal. Its bucket's text does not contain the penalty's period, so that ``lift`` finds it."""

    def __post_init__(self) -> None:
        self.bucket = bucket(bucket_prefix(self.name or DEFAULT_NAME, self.quota.name), self.key)


@dataclass(slots=True)
class BlockCheck(Charge):
    """A charge that checks, within a take, whether a key is blocked; ``penalty`` is that of its rule."""

    _: KW_ONLY
    penalty: Penalty


def is_blocked(decision: Decision) -> bool:
    """Whether a block refused the take."""
    return not decision.allowed and any(isinstance(charge, BlockCheck) for charge in decision.refusing)


async def block(store: Store, name: str | None, key: str, seconds: float) -> Decision:
    """Charge as much as takes ``seconds`` to drain, unless the level is already above the burst.

    The level is back at the burst a millisecond early, so any number of checks passes when the time is over. During an
    outage it is refused: no block may come into force after the caller was told that there is none.
    """
    take = Take((Charge(BLOCK, key, seconds * RATE, name),), _SOON, on_error="deny")
    return (await store.take((take,)))[0]


# Strikes


_log = FailureLog()


async def apply_penalties(store: Store, decision: Decision) -> Decision:
    """A decision after its penalties: a refusal counts as a strike, and may become a refusal by a block.

    All other decisions lose their checks for blocks. A refusal that the store cannot count goes unpunished, and so
    does one that was decided without the store.
    """
    if not (decision.allowed or decision.degraded or is_blocked(decision)):
        refusing = {charge.name for charge in decision.refusing}
        for check in [each for each in decision.charges if isinstance(each, BlockCheck) and each.name in refusing]:
            with suppress(StoreError):
                if await add_strike(store, check):
                    now = await store.peek(replace(decision.take, max_wait=0.0))
                    decision = now if is_blocked(now) else decision  # a short block may be over
    return without(decision, BlockCheck, is_left=is_blocked(decision))


async def add_strike(store: Store, check: BlockCheck) -> float:
    """Count a refusal of a key that is not blocked; the seconds of the block that this has led to, or 0.0."""
    penalty, key, name = check.penalty, check.key, check.name
    if penalty.strikes is not None:
        strike = (await store.take((Take((Strike(penalty.strikes, key, 1, name), check)),)))[0]
        if strike.allowed or is_blocked(strike):
            return 0.0
    earlier = Charge(EARLIER_BLOCKS, key, 1, name)
    seconds = penalty.seconds(round(EARLIER_BLOCKS.most) - (await store.peek(Take((earlier,)))).remaining)
    if not await block(store, name, key, seconds):
        return 0.0
    if _log.unreported(name) is not None:  # once a minute, and without the key, which may be personal
        logger.warning("a key is blocked by the rule %r for %g s", name, seconds)
    if penalty.growth > 1:
        await store.take((Take((earlier,)),))
    await store.reset([Strike(STRIKES, key, 1, name)])
    return seconds


# Blocks by hand


class Blocks:
    """The blocks under the name of a rule or middleware: to see them, to lift them, and to block by hand.

    ``store`` is its store or URL, and ``name`` its name. Keys are what its key function returns: an address, or the
    key of a header, ``header("x-api-key").key_of(value)``. An IPv6 address also means its networks of 64, 60, 56, 52
    and 48 bits, one of which ``client_ip()`` counts as one client. Every method may raise ``StoreError``.
    """

    @shows_use('Blocks(store=store, name="login")')
    def __init__(self, *, store: Store | str, name: str = DEFAULT_NAME) -> None:
        self._store = store_of_limits(store, 'Blocks(store=store, name="login")')
        self._name = checked_name(name)

    async def blocked_for(self, key: str | bytes) -> float:
        """The seconds for which ``key`` is still blocked; 0.0 if it is not."""
        takes = [Take((Charge(BLOCK, each, CHECK_COST, self._name),)) for each in keys_named(as_key(key))]
        return max([(await self._store.peek(take)).retry_after for take in takes])

    async def block(self, key: str | bytes, block_for: str | float) -> bool:
        """Block ``key`` for a duration such as ``"1 day"``, or seconds; false if it already was blocked."""
        seconds = seconds_of("block_for", block_for)
        decisions = [await block(self._store, self._name, each, seconds) for each in keys_named(as_key(key))]
        if any(decision.degraded for decision in decisions):
            raise StoreUnavailable(f"the store does not answer, so {key!r} is not blocked")
        return all(decisions)

    async def lift(self, key: str | bytes) -> None:
        """Let ``key`` pass again, and forget its refusals and earlier blocks. Its quotas stay as they are."""
        for each in keys_named(as_key(key)):
            charges = [Charge(quota, each, 1, self._name) for quota in (BLOCK, EARLIER_BLOCKS)]
            await self._store.reset([*charges, Strike(STRIKES, each, 1, self._name)])

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()
