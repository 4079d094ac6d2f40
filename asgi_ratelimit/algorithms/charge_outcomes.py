"""The outcome of one charge that does not wait, as the stores report it until somebody needs a decision.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from ..decision import Charge, Decision, Take
from .quota_kinds import ALGORITHMS
from .state import PLAIN_PARTS, Booking, Outcome
from .take import decide_taken


def is_allowed(outcome: Outcome) -> bool:
    """Whether the charge was taken."""
    return len(outcome) == PLAIN_PARTS or outcome[0][0] is not None


def wait_of(outcome: Outcome) -> float:
    """The microseconds until the charge would conform; 0 if it was taken."""
    return 0.0 if len(outcome) == PLAIN_PARTS else outcome[0][1]


def decision_of(charge: Charge, outcome: Outcome) -> Decision:
    """The decision of a take of one charge without a wait."""
    if len(outcome) == PLAIN_PARTS:
        return decision_of_booking(Take((charge,)), (0.0, outcome))
    taken, state, now, birth = outcome
    return decide_taken(Take((charge,)), [state], [taken], now, birth)


def decision_of_booking(take: Take, booking: Booking) -> Decision:
    """The decision of a take of one charge that was booked."""
    _, (level, last, generation, now, _, birth) = booking
    (charge,), state = take.charges, (level, last, generation, (), (), b"")
    taken = ALGORITHMS[type(charge.quota)].take(charge.quota, state, now, charge.cost, take.max_wait_us)
    return decide_taken(take, [state], [taken], now, birth)
