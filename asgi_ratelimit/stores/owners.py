"""Who has which buckets of a store: two limits of one name must not disagree on what a bucket holds."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any, TypeAlias
from typing import Any as Store
from weakref import WeakKeyDictionary, ref

from ..errors import ConfigurationError
from ..quotas import Quota

Line: TypeAlias = Any

_Claims: TypeAlias = dict[tuple[str, str], tuple["ref[object]", Quota]]

_claims: WeakKeyDictionary[Store, _Claims] = WeakKeyDictionary()
"""For each store, who has said what a quota of a name holds, as long as that is alive."""


def claim(store: Store, owner: object, lines: Iterable[Line]) -> None:
    """Say that ``owner`` has the buckets of these lines in a store.

    Raises ``ConfigurationError`` where somebody else has buckets of the same names for other quotas.
    """
    claims = _claims.setdefault(store, {})
    for line in lines:
        for quota in () if callable(line.quota) else line.quota:
            if _conflicting(claims, line.name, quota):
                gc.collect()  # an app that is gone may not have been noticed yet
                _require_agreement(claims, line.name, quota)
            claims[line.name, quota.name] = (ref(owner), quota)


def _conflicting(claims: _Claims, name: str, quota: Quota) -> Quota | None:
    """What somebody else takes the buckets of this name for, if that is something else."""
    holder, theirs = claims.get((name, quota.name), (None, quota))
    return None if holder is None or holder() is None or theirs == quota else theirs


def _require_agreement(claims: _Claims, name: str, quota: Quota) -> None:
    theirs = _conflicting(claims, name, quota)
    if theirs is not None:
        raise ConfigurationError(
            f"two limits named {name!r} share a store and have different quotas named {quota.name!r}, {theirs!r} and "
            f'{quota!r}, which would share buckets: give one another name, name="uploads"'
        )
