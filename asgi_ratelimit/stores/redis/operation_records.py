"""The record of an operation, which the script writes when it carries one out: see ``once`` in ``rate_limit.lua``."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace

from ...algorithms import State, unpack
from ...decision import Charge, SettledCharge, Take
from ..operations import of_quotas
from .packed_quotas import SIZE, quota_in

_HEAD = struct.Struct("<dddd")
_LENGTH = struct.Struct("<I")
_DEBIT = struct.Struct("<dd")


@dataclass(slots=True)
class OperationRecord:
    """A take, under its quotas of the time ``then``, when it met these states, with ``birth`` as its first one.

    ``is_debit``: it was charged as a repayment. ``debits`` are what that has debited, of each charge; ``None`` for any
    other operation, and where an older version has not recorded it.
    """

    take: Take
    states: list[State | None]
    then: float
    birth: int
    is_debit: bool
    debits: tuple[SettledCharge, ...] | None


def read_record(record: bytes | None, take: Take) -> OperationRecord:
    """What a record says of a take that has come again. Raises ``struct.error`` or ``ValueError`` for other bytes."""
    if record is None:
        raise struct.error("there is no record")
    _, _, then, birth = _HEAD.unpack_from(record)
    at, values = _HEAD.size, []
    for _ in take.charges:
        (length,) = _LENGTH.unpack_from(record, at)
        at += _LENGTH.size + length
        values.append(record[at - length : at] or None)
    size = SIZE + (_DEBIT.size if birth < 0 else 0)
    debits = None
    if len(record) - at == size * len(take.charges):  # an older version wrote other quotas, or none
        parts = [record[start : start + size] for start in range(at, len(record), size)]
        take = of_quotas(take, [quota_in(part[:SIZE], each.quota) for part, each in zip(parts, take.charges)])
        if birth < 0:
            debits = tuple([_debit_in(part[SIZE:], each) for part, each in zip(parts, take.charges)])
    states = [unpack(charge.quota, value, len(values)) for charge, value in zip(take.charges, values)]
    return OperationRecord(take, states, then, int(abs(birth)), birth < 0, debits)


def _debit_in(packed: bytes, charge: Charge) -> SettledCharge:
    cost, actual = _DEBIT.unpack(packed)
    if not 0.0 <= cost <= actual < math.inf:  # also false for NaN
        raise struct.error(f"{actual!r} units are no debit of a charge of {cost!r}")
    return SettledCharge(replace(charge, cost=cost), 0.0, 0, 0.0, 0.0, actual)
