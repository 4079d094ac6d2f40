"""Which owners use which names on a store: two limits of one name must agree on what their buckets hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias
from weakref import ref

from ..errors import ConfigurationError
from ..logs import warn_once
from ..quota_text import readable
from ..quotas import Quota
from . import Store
from .base import reference

_Buckets: TypeAlias = tuple[Hashable, str, str]
"""The place of a store, the name of a limit, and the name of a quota."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A quota that an owner uses; both the owner and, where possible, the store are held weakly."""

    owner: ref[object]
    store: Callable[[], object]
    quota: Quota
    is_listed: bool
    """Whether ``owned`` yields it."""


_uses: dict[_Buckets, list[_Use]] = {}


def register(
    store: Store,
    owner: object,
    quotas: Iterable[tuple[str, Quota]],
    *,
    unlisted: Iterable[tuple[str, Quota]] = (),
    instead: bool = False,
    is_peer: Callable[[object], bool] = lambda other: False,
) -> None:
    """Register ``owner``, for as long as it lives, as a user of these quotas, each under the name of its limit.

    With ``instead``, these replace all that it has used on this store before. ``owned`` does not yield what is
    ``unlisted``. ``is_peer`` says that another owner is about to change as this one does, and need not agree yet.
    The owner is held weakly, and so is the store, if it can be. Raises ``ConfigurationError`` if a living owner uses
    another quota of the same name under the same limit's name, and then changes nothing. If its store is another object
    that leads to the same buckets, this is only logged: a program may stand in for two versions of an app.
    """
    place, new = _place_of(store), dict[_Buckets, _Use]()
    for is_listed, named in ((False, unlisted), (True, quotas)):
        for name, quota in named:
            buckets = place, name, quota.name
            owner_ref = ref(owner, partial(_remove_dead, buckets))
            new[buckets] = _Use(owner_ref, reference(store), quota, is_listed)
    others = {buckets: _living(buckets, owner) for buckets in new}
    differing = [
        (name, use.quota, other)
        for (_, name, quota_name), use in new.items()
        for other in others[place, name, quota_name]
        if other.quota != use.quota and not is_peer(other.owner())
    ]
    for name, quota, other in differing:
        if other.store() is store:
            raise ConfigurationError(
                f"two limits named {name!r} share a store and have different quotas named {quota.name!r}, "
                f"{readable(other.quota)} and {readable(quota)}, which would share buckets: give one of them another "
                'name, name="uploads", or, in tests that build several apps, a store of its own'
            )
    for name, quota, other in differing:
        warn_once(
            "a-name-with-two-quotas",
            f"two limits named {name!r} have different quotas named {quota.name!r}, {readable(other.quota)} and "
            f"{readable(quota)}, and share their buckets, because their stores are at the same Redis: give one of them "
            'another name, name="uploads", or its store a prefix, RedisStore(url, prefix="shop")',
        )
    for buckets in [each for each in _uses.copy() if instead and each[0] == place and each not in new]:
        _set_uses(buckets, _living(buckets, owner))
    for buckets, use in new.items():
        _uses[buckets] = [*others[buckets], use]


def _place_of(store: object) -> Hashable:
    """What is equal for stores that share their buckets: the ``place`` of a store that has one, or its identity."""
    place: Hashable = getattr(store, "place", None)
    return id(store) if place is None else place


def _living(buckets: _Buckets, owner: object = None) -> list[_Use]:
    """The uses of a quota by owners that live, except this one, on stores that live: identities are used again."""
    living = []
    for use in _uses.get(buckets, ()):
        other, store = use.owner(), use.store()
        if other is not None and other is not owner and store is not None and _place_of(store) == buckets[0]:
            living.append(use)
    return living


def _remove_dead(buckets: _Buckets, _: ref[object]) -> None:
    """Remove the owners that are gone."""
    _set_uses(buckets, _living(buckets))


def _set_uses(buckets: _Buckets, uses: list[_Use]) -> None:
    if uses:
        _uses[buckets] = uses
    else:
        _uses.pop(buckets, None)


def owned(store: object) -> Iterator[tuple[str, Quota]]:
    """The quotas that living owners use on a store, each under the name of its limit."""
    place = _place_of(store)
    for buckets in [each for each in _uses.copy() if each[0] == place]:  # while making a list, owners could go
        living = [use.quota for use in _living(buckets) if use.is_listed and use.store() is store]
        if living:
            yield buckets[1], living[0]
