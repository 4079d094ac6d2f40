"""The data between ``RedisStore`` and ``rate_limit.lua``: packed takes and settlements there, values of keys back.

The script answers with the value that each charge met, and its verdict. This module computes the decision from them,
with the same ``decide`` that a memory store calls. So a reply is short, and both stores give equal decisions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...algorithms import ALGORITHMS, GENERATIONS, Outcome, admit, current, decide, pack, unpack
from ...algorithms.packed_states import PLAIN_SIZE, pack_plain, unpack_plain
from ...decision import Charge, ChargeTemplate, Decision, Redemption, Settlement, Take
from ...errors import StoreError
from ...logs import FailureLog
from ...quotas import Quota
from .packed_quotas import packed_quota
from .replies import YES, Values, answer_to, as_decided
from .script_actions import (
    Action,
    Answer,
    BucketCharge,
    Operation,
    Peek,
    Repaid,
    Repayment,
    Reset,
    charges_of,
    operation_keys,
    operation_of,
)

Reply: TypeAlias = Sequence[bytes | None]

unreadable = FailureLog()
"""Errors for values in Redis that cannot be read."""

TAKE, BEST_EFFORT, SETTLE, RESET, OPERATION = 1, 2, 3, 4, 5
MAY_SETTLE = 16
"""Added to the byte of a take that may be settled."""
PEEK_US = -1.0
"""Replaces the longest wait: evaluate, but write nothing."""

_TEXTS = {bytes, type(None)}

_ACTION = struct.Struct("<BHdH")
_CHARGE = struct.Struct("<Hd")
_SETTLED = struct.Struct("<Hdddddd")
_OPERATION = struct.Struct("<BHdHdd")


def encode(prefix: bytes, actions: Sequence[Action], operation_ttl_us: float = 0.0) -> tuple[list[bytes], bytes, bytes]:
    """The keys of all charges and operations, the distinct quotas, each once, and the actions, for the script.

    Consecutive takes of one charge that differ only in their keys are sent once. Operations are remembered for
    ``operation_ttl_us``.
    """
    keys: list[bytes] = []
    start = prefix + b":"
    runs: list[list[Any]] = []  # an action, its count, and its operation
    run: list[Any] = []
    template: ChargeTemplate | None = None
    for action in actions:
        if type(action) is tuple:
            keys.append(start + action[1].encode())
            if action[0] is template or (template is not None and _is_equal(action[0], template)):
                run[1] += 1
                continue
            template, operation = action[0], None
        else:
            template, operation = None, operation_of(action)
            if operation is not None:
                keys += [start + text.encode() for text in operation.texts]
            keys += [start + charge.bucket.encode() for charge in charges_of(action)]
        run = [action, 1, operation]
        runs.append(run)
    numbers: dict[Quota, int] = {}
    packed = b"".join([_packed_run(action, count, each, numbers, operation_ttl_us) for action, count, each in runs])
    return keys, b"".join(map(packed_quota, numbers)), packed


def _is_equal(template: ChargeTemplate, other: ChargeTemplate) -> bool:
    """Whether two templates differ only in the texts of buckets."""
    return template.quota == other.quota and template.cost == other.cost


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


def decode(actions: Sequence[Action], reply: Reply, births: int) -> tuple[list[Answer | StoreError], Values, bool]:
    """The answers in the script's reply, the current values of the buckets, and whether all are plain outcomes.

    The answers are one for each action. A state that was made for key number i of the call is of the generation
    ``births + i``, counted from 1. There are fewer answers than actions if the script stopped at its bound of work: the
    rest has to be sent again. An action whose values cannot be read is answered with a ``StoreError``, which is logged,
    once a minute. Raises ``StoreError`` if the reply makes no sense.
    """
    now, verdicts, values = _parts(reply)
    answers: list[Answer | StoreError] = []
    after: Values = {}
    at, is_plain = 0, True
    for action, verdict in zip(actions, verdicts):
        try:
            if type(action) is tuple:
                at += 1
                template, bucket = action
                quota, value, left, birth = template.quota, values[at - 1], None, births + at
                if verdict == YES and quota.is_simple:
                    if value is None:
                        level, last, generation = 0.0, now, birth % GENERATIONS
                        left = admit(quota, 0.0, 0.0, template.cost)  # type: ignore[arg-type]  # it is a token bucket
                    elif len(value) == PLAIN_SIZE:
                        stamp, last, level, generation = unpack_plain(value)
                        if stamp == quota.stamp and last <= now:
                            left = admit(quota, level, now - last, template.cost)  # type: ignore[arg-type]  # as above
                if left is not None:
                    after[bucket] = pack_plain(quota.stamp, now, left, generation)
                    answers.append((level, last, generation, now, left, birth))
                    continue
                answers.append(_general_outcome(action, verdict, value, now, birth, after))
            else:
                first, birth = at, births + at + 1
                at += operation_keys(action) + len(charges_of(action))
                answers.append(answer_to(action, verdict, values[first:at], now, birth, after))
        except Exception as error:  # noqa: BLE001  # stored values may be anything: the error concerns only this action
            raised = _unreadable(action, error)
            answers.append(Repaid() if type(action) is Repayment else raised)  # a repayment has been carried out
        is_plain = False
    if len(verdicts) > len(actions) or not verdicts or at != len(values):
        raise _nonsense(reply)
    return answers, after, is_plain


def _unreadable(action: Action, error: Exception) -> StoreError:
    """The answer to an action over values that cannot be read."""
    buckets = ", ".join([repr(charge.bucket) for charge in charges_of(action)])
    raised = StoreError(f"what Redis has stored of {buckets} cannot be read: {error!r:.200}")
    unreadable.report("reading what Redis has stored", raised)
    return raised


def _general_outcome(
    action: BucketCharge, verdict: int, value: bytes | None, now: float, birth: int, after: Values
) -> Outcome | Decision:
    """The outcome of a charge of any quota over any state, or refused; its new value is added to ``after``."""
    charge, quota, stored = action[0].charge(action[1]), action[0].quota, unpack(action[0].quota, value)
    state = current(quota, stored, now, birth)
    taken = left, _, _ = ALGORITHMS[type(quota)].take(quota, state, now, charge.cost, 0.0)
    if (left is not None) != (verdict == YES):
        decision, _ = decide(Take((charge,)), [state], now)
        return as_decided(decision, verdict == YES)
    if left is not None or stored is not None:
        after[charge.bucket] = pack(quota, state if left is None else left)
    return taken, state, now, birth


def _parts(reply: object) -> tuple[float, bytes, Reply]:
    """The time, the verdicts and the values in a reply; raises ``StoreError`` for anything else."""
    if isinstance(reply, list) and reply and _TEXTS.issuperset(map(type, reply)):
        head, *values = reply
        try:
            _, now, _, verdicts = head.split(b" ")
            now_us = float(now)
            if math.isfinite(now_us):
                return now_us, verdicts, values
        except (AttributeError, ValueError):  # no head at all, or no time in it
            pass
    raise _nonsense(reply)


def _nonsense(reply: object) -> StoreError:
    return StoreError(f"the script's reply has the wrong shape: {reply!r:.200}")
