"""What travels to ``rate_limit.lua``: the keys, the distinct quotas, and packed actions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ...decision import Charge, ChargeTemplate, Redemption, Settlement, Take
from ...quotas import FixedWindow, Quota, RollingWindow, TokenBucket
from .actions import Action, BucketCharge, Operation, Peek, Repayment, Reset, charges_of, operation_of

TAKE, BEST_EFFORT, SETTLE, RESET, OPERATION = 1, 2, 3, 4, 5
MAY_SETTLE = 16
"""Added to the byte of a take that may be settled."""
PEEK_US = -1.0
"""In the place of the longest wait: evaluate, but write nothing."""

_QUOTA = struct.Struct("<11sdddddd")
_ACTION = struct.Struct("<BHdH")
_CHARGE = struct.Struct("<Hd")
_SETTLED = struct.Struct("<Hdddddd")
_OPERATION = struct.Struct("<BHdHdd")


def encode(prefix: bytes, actions: Sequence[Action], operation_ttl_us: float = 0.0) -> tuple[list[bytes], bytes, bytes]:
    """The keys of all charges and operations, the distinct quotas, each once, and the actions, for the script.

    Takes of one charge that follow one another, and are equal but for their keys, travel once. Operations are
    remembered for ``operation_ttl_us``.
    """
    keys: list[bytes] = []
    start = prefix + b":"
    runs: list[list[Any]] = []  # an action, how many there are of it, and its operation
    latest = None
    for action in actions:
        if type(action) is tuple:
            template, bucket = action
            keys.append(start + bucket.encode())
            if template is latest or (latest is not None and template[:2] == latest[:2]):
                runs[-1][1] += 1
            else:
                latest = template
                runs.append([action, 1, None])
        else:
            operation = operation_of(action)
            if operation is not None:
                keys += [start + text.encode() for text in operation.texts]
            keys += [start + charge.bucket.encode() for charge in charges_of(action)]
            runs.append([action, 1, operation])
            latest = None
    numbers: dict[Quota, int] = {}
    packed = b"".join([_packed_run(action, count, each, numbers, operation_ttl_us) for action, count, each in runs])
    return keys, b"".join(map(_packed_quota, numbers)), packed


def _packed_run(
    action: Action, count: int, operation: Operation | None, numbers: dict[Quota, int], operation_ttl_us: float
) -> bytes:
    packed = _PACKERS[type(action)](action, count, numbers)
    if operation is None:
        return packed
    ends = (operation.until_us, operation.token)
    return _OPERATION.pack(OPERATION, operation.mode, operation_ttl_us, len(packed), *ends) + packed


def _packed_charge(action: BucketCharge, count: int, numbers: dict[Quota, int]) -> bytes:
    return _packed_charges(TAKE, count, 0.0, (action[0],), numbers)


def _packed_take(take: Take, count: int, numbers: dict[Quota, int]) -> bytes:
    return _packed_charges(_kind(take), count, take.max_wait_us, take.charges, numbers)


def _packed_peek(peek: Peek | Redemption, count: int, numbers: dict[Quota, int]) -> bytes:
    return _packed_charges(_kind(peek.take), count, PEEK_US, peek.charges, numbers)


def _kind(take: Take) -> int:
    return (BEST_EFFORT if take.best_effort else TAKE) + (MAY_SETTLE if take.may_settle else 0)


def _packed_charges(
    kind: int, count: int, max_wait_us: float, charges: Sequence[Charge | ChargeTemplate], numbers: dict[Quota, int]
) -> bytes:
    packed = [_CHARGE.pack(_number(charge.quota, numbers), charge.cost) for charge in charges]
    return _ACTION.pack(kind, count, max_wait_us, len(packed)) + b"".join(packed)


def _packed_settlement(settlement: Settlement | Repayment, count: int, numbers: dict[Quota, int]) -> bytes:
    packed = [_ACTION.pack(SETTLE, count, 0.0, len(settlement.settled_charges))]
    for each in settlement.settled_charges:
        number = _number(each.charge.quota, numbers)
        booked = (each.since_us, each.generation, each.place, each.slot_us)
        packed.append(_SETTLED.pack(number, each.charge.cost, each.actual, *booked))
    return b"".join(packed)


def _packed_reset(reset: Reset, count: int, numbers: dict[Quota, int]) -> bytes:
    packed = [_CHARGE.pack(_number(charge.quota, numbers), 0.0) for charge in reset.charges]
    return _ACTION.pack(RESET, count, 0.0, len(packed)) + b"".join(packed)


def _number(quota: Quota, numbers: dict[Quota, int]) -> int:
    return numbers.setdefault(quota, len(numbers) + 1)


_PACKERS: dict[type, Callable[[Any, int, dict[Quota, int]], bytes]] = {
    tuple: _packed_charge,
    Take: _packed_take,
    Peek: _packed_peek,
    Redemption: _packed_peek,
    Settlement: _packed_settlement,
    Repayment: _packed_settlement,
    Reset: _packed_reset,
}


@lru_cache(maxsize=4096)
def _packed_quota(quota: Quota) -> bytes:
    return _QUOTA.pack(quota.stamp, quota.period_us, quota.limit, quota.most, *_own_numbers(quota))


def _own_numbers(quota: Quota) -> tuple[float, float, float]:
    match quota:
        case TokenBucket():
            return quota.slow_rate, quota.burst_level, quota.burst_floor
        case RollingWindow():
            return quota.buckets, quota.part_us, 0.0
        case FixedWindow():
            return 0.0, 0.0, 0.0
