"""Who uses which names on a store: two limits of one name must agree on what their buckets hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from weakref import ref

from ..errors import ConfigurationError
from ..quotas import Quota
from . import Store

_Buckets: TypeAlias = tuple[int, str, str]
"""The identity of a store, the name of a limit and that of a quota."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A quota that an owner uses; both the owner and, where possible, the store are held weakly."""

    owner: ref[object]
    store: Callable[[], object]
    quota: Quota


_uses: dict[_Buckets, list[_Use]] = {}


def register(store: Store, owner: object, quotas: Iterable[tuple[str, Quota]]) -> None:
    """Register ``owner``, for as long as it lives, as a user of these quotas, each under the name of its limit.

    It is held weakly, and so is the store, if it can be. A store need not be hashable. Raises ``ConfigurationError``
    where a living owner uses another quota of the same name under the same limit's name.
    """
    for name, quota in quotas:
        buckets = id(store), name, quota.name
        _require_agreement(name, quota, _other_quota(buckets, store, owner, quota))
        others = [use for use in _uses.get(buckets, ()) if use.owner() is not owner]
        _uses[buckets] = [*others, _Use(ref(owner, partial(_remove_dead, buckets)), _reference(store), quota)]


def _other_quota(buckets: _Buckets, store: Store, owner: object, quota: Quota) -> Quota | None:
    """What another living owner uses under these names, if that is another quota."""
    for use in _uses.get(buckets, ()):
        living = use.owner()
        if living is not None and living is not owner and use.store() is store and use.quota != quota:
            return use.quota
    return None


def _require_agreement(name: str, quota: Quota, other: Quota | None) -> None:
    if other is not None:
        raise ConfigurationError(
            f"two limits named {name!r} share a store and have different quotas named {quota.name!r}, {other!r} and "
            f'{quota!r}, which would share buckets: give one of them another name, name="uploads", '
            "or, in tests that build several apps, a store of its own"
        )


def _reference(store: Store) -> Callable[[], object]:
    """A weak reference to a store, or a strong one to a store of a class without weak references."""
    try:
        return ref(store)
    except TypeError:
        return lambda: store


def _remove_dead(buckets: _Buckets, _: ref[object]) -> None:
    """Remove the owners that are gone."""
    living = [use for use in _uses.get(buckets, ()) if use.owner() is not None]
    if living:
        _uses[buckets] = living
    else:
        _uses.pop(buckets, None)
