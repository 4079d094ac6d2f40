"""Which owners use which names on a store: two limits of one name must agree on what their buckets hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias
from weakref import ref

from ..errors import ConfigurationError
from ..quota_text import readable
from ..quotas import Quota, TokenBucket
from . import Store
from .by_store import reference

_Buckets: TypeAlias = tuple[int, str, str]
"""The identity of a store, the name of a limit, and the name of a quota."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A quota that an owner uses; both the owner and, where possible, the store are held weakly."""

    owner: ref[object]
    store: Callable[[], object]
    quota: Quota


_uses: dict[_Buckets, list[_Use]] = {}


def register(store: Store, owner: object, quotas: Iterable[tuple[str, Quota]]) -> None:
    """Register ``owner``, for as long as it lives, as a user of these quotas, each under the name of its limit.

    The owner is held weakly, and so is the store, if it can be. A store need not be hashable. Raises
    ``ConfigurationError`` if a living owner uses another quota of the same name under the same limit's name, and then
    registers nothing.
    """
    _register(store, owner, list(quotas), _nobody)


def register_instead(
    store: Store, owner: object, quotas: Iterable[tuple[str, Quota]], is_peer: Callable[[object], bool]
) -> None:
    """Register ``owner`` as a user of these quotas, instead of all that it has used on this store before.

    ``is_peer`` says that another owner is about to change as this one does, and need not agree yet. Raises
    ``ConfigurationError`` as ``register`` does, and then changes nothing.
    """
    listed = list(quotas)
    _register(store, owner, listed, is_peer)
    kept = {(id(store), name, quota.name) for name, quota in listed}
    for buckets in [each for each in _uses.copy() if each[0] == id(store) and each not in kept]:
        _keep(buckets, [use for use in _uses.get(buckets, ()) if use.owner() is not owner])


def _register(
    store: Store, owner: object, quotas: Sequence[tuple[str, Quota]], is_peer: Callable[[object], bool]
) -> None:
    for name, quota in quotas:
        _require_agreement(name, quota, _other_quota(store, name, owner, quota, is_peer))
    for name, quota in quotas:
        buckets = id(store), name, quota.name
        others = [use for use in _uses.get(buckets, ()) if use.owner() is not owner]
        _uses[buckets] = [*others, _Use(ref(owner, partial(_remove_dead, buckets)), reference(store), quota)]


def _nobody(owner: object) -> bool:
    return False


def _other_quota(
    store: Store, name: str, owner: object, quota: Quota, is_peer: Callable[[object], bool]
) -> Quota | None:
    """The quota that another living owner uses under these names, if it is another one."""
    for use in _uses.get((id(store), name, quota.name), ()):
        living = use.owner()
        is_other = living is not None and living is not owner and use.store() is store and use.quota != quota
        if is_other and not is_peer(living):
            return use.quota
    return None


def _require_agreement(name: str, quota: Quota, other: Quota | None) -> None:
    if other is not None:
        raise ConfigurationError(
            f"two limits named {name!r} share a store and have different quotas named {quota.name!r}, "
            f"{readable(other)} and {readable(quota)}, which would share buckets: give one of them another name, "
            f'name="uploads", or, in tests that build several apps, a store of its own{_hint(quota, other)}'
        )


def _hint(quota: Quota, other: Quota) -> str:
    """A hint about one text that means two quotas."""
    if not isinstance(quota, TokenBucket) or not isinstance(other, TokenBucket):
        return ""
    spaced = quota if quota.burst == 1 else other
    if replace(quota, burst=other.burst) != other or spaced.burst != 1:
        return ""
    return (
        '. A text without a burst, "10/s", has burst 1 in pace and PacedTransport, and its limit as the burst '
        'elsewhere: write "10/s burst 10" in both'
    )


def _remove_dead(buckets: _Buckets, _: ref[object]) -> None:
    """Remove the owners that are gone."""
    _keep(buckets, [use for use in _uses.get(buckets, ()) if use.owner() is not None])


def _keep(buckets: _Buckets, uses: list[_Use]) -> None:
    """Set all uses of a quota."""
    if uses:
        _uses[buckets] = uses
    else:
        _uses.pop(buckets, None)


def owned(store: object) -> Iterator[tuple[str, Quota]]:
    """The quotas that living owners use on a store, each under the name of its limit."""
    for (identity, name, _), uses in _uses.copy().items():  # while making a list, owners could go
        if identity == id(store):
            living = [use.quota for use in uses if use.owner() is not None and use.store() is store]
            if living:
                yield name, living[0]
