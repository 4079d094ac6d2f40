"""The actions of a script call: takes, peeks, settlements and resets; and which of them are operations.

No ``await``, no clock, no lock, no logging in this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...algorithms import Outcome, is_allowed
from ...decision import Charge, ChargeTemplate, Decision, Redemption, SettledCharge, Settlement, Take
from ...errors import StoreError, StoreTimeout
from ..operations import settlement_text, take_text
from .connection.store_errors import NotWritable


@dataclass(slots=True)
class Peek:
    """A request for the decision that a take would get."""

    take: Take

    @property
    def charges(self) -> tuple[Charge, ...]:
        return self.take.charges


@dataclass(slots=True)
class Reset:
    """A request to forget the buckets of these charges."""

    charges: Sequence[Charge]


@dataclass(slots=True)
class Repayment:
    """Units that were taken until ``until_us`` instead of in the store, to be debited there once, as the ``operation``.

    ``is_take`` says that this is the operation of a take, which others may also have sent.
    """

    operation: str
    settled_charges: tuple[SettledCharge, ...]
    until_us: float
    is_take: bool = False

    @property
    def charges(self) -> list[Charge]:
        return [settled.charge for settled in self.settled_charges]


@dataclass(slots=True)
class Repaid:
    """Where the charges of a repayment are in the store, and the ``id`` of their settlement there."""

    id: float = 0.0
    settled_charges: Sequence[SettledCharge] = ()


BucketCharge: TypeAlias = tuple[ChargeTemplate, str]
"""A take of one charge without a wait: its template, and the bucket."""

Action: TypeAlias = BucketCharge | Take | Peek | Redemption | Settlement | Repayment | Reset

Answer: TypeAlias = Outcome | Decision | Repaid | bool | None
"""The outcome of a charge; the decision of a take, peek or redemption; the bookings of a repayment; whether a
settlement was carried out; ``None`` for a reset."""


def charges_of(action: Action) -> Sequence[Charge]:
    """The charges of an action."""
    return (action[0].charge(action[1]),) if isinstance(action, tuple) else action.charges


def take_of(action: BucketCharge) -> Take:
    """The take that a charge on a bucket stands for."""
    return Take((action[0].charge(action[1]),))


REMEMBER, ANSWER_AGAIN, UNDO = 0, 1, 2
"""Whether a second time is refused or answered again; or refused, with the operation of a take forgotten."""


@dataclass(slots=True)
class Operation:
    """How an action is carried out once; see ``rate_limit.lua``. Its texts name its key, and a key to forget."""

    texts: tuple[str, ...]
    mode: int
    until_us: float = 0.0
    token: float = 0.0


def operation_of(action: Action) -> Operation | None:
    """The operation of an action; ``None`` if it is not an operation."""
    match action:
        case Take():
            return None if action.operation is None else Operation((take_text(action),), ANSWER_AGAIN)
        case Settlement():
            undone = () if action.undone is None else (take_text(action.undone),)
            mode = UNDO if undone else REMEMBER
            return Operation((settlement_text(action), *undone), mode, action.until_us)
        case Redemption():
            return Operation((settlement_text(action),), REMEMBER, action.until_us, action.token)
        case Repayment():
            return Operation((action.operation,), ANSWER_AGAIN)
        case _:
            return None


def is_operation(action: Action) -> bool:
    """Whether an action is carried out once, however often it is sent."""
    return action.operation is not None if isinstance(action, Take) else not isinstance(action, (tuple, Peek, Reset))


def taken_as(actions: Sequence[Action]) -> set[str]:
    """The operations of takes. The takes, not repayments, should carry them out, so that they can be settled."""
    return {take_text(each) for each in actions if isinstance(each, Take) and each.operation is not None}


def is_one_of(action: Action, operations: set[str]) -> bool:
    """Whether an action is a repayment under one of these operations."""
    return isinstance(action, Repayment) and action.operation in operations


def operation_keys(action: Action) -> int:
    """The number of keys of an action besides those of its charges."""
    if not is_operation(action):
        return 0
    return 2 if isinstance(action, Settlement) and action.undone is not None else 1


def resends(action: Action, error: Exception) -> bool:
    """Whether an action may be sent again after an error: it counts only once, even if it was carried out before."""
    return is_operation(action) and isinstance(error, StoreError) and not isinstance(error, (StoreTimeout, NotWritable))


def has_written(action: Action, answer: Answer | StoreError) -> bool:
    """Whether an action has changed a state; a refused take or a peek has not."""
    if isinstance(answer, Decision):
        return answer.allowed and not isinstance(action, Peek)
    if isinstance(answer, tuple):
        return is_allowed(answer)
    return not isinstance(answer, StoreError)
