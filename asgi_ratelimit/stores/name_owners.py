"""Which owners use which names on a store: two limits of one name must agree on what their buckets hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ..errors import ConfigurationError
from ..logs import warn_once
from ..quota_text import readable
from ..quotas import Quota
from . import Store
from .base import reference


@dataclass(frozen=True, slots=True)
class _Uses:
    """What an owner uses on a store, by the names of limits and quotas; the store is held weakly, where possible."""

    store: Callable[[], object]
    listed: dict[tuple[str, str], Quota]
    unlisted: dict[tuple[str, str], Quota]
    """What ``owned`` does not yield."""


_uses: WeakKeyDictionary[object, dict[Hashable, _Uses]] = WeakKeyDictionary()
"""What each living owner uses, by the places of its stores."""


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
    place = _place_of(store)
    listed, hidden = ({(name, quota.name): quota for name, quota in each} for each in (quotas, unlisted))
    new = hidden | listed
    differing = [
        (names[0], quota, other.store() is store, new[names])
        for other_owner, other in _living_at(place)
        if other_owner is not owner and not is_peer(other_owner)
        for names, quota in (other.unlisted | other.listed).items()
        if new.get(names, quota) != quota
    ]
    for name, before, is_same_store, quota in differing:
        if is_same_store:
            raise ConfigurationError(
                f"two limits named {name!r} share a store and have different quotas named {quota.name!r}, "
                f"{readable(before)} and {readable(quota)}, which would share buckets: give one of them another "
                'name, name="uploads", or, in tests that build several apps, a store of its own'
            )
    for name, before, _, quota in differing:
        warn_once(
            "a-name-with-two-quotas",
            f"two limits named {name!r} have different quotas named {quota.name!r}, {readable(before)} and "
            f"{readable(quota)}, and share their buckets, because their stores are at the same Redis: give one of them "
            'another name, name="uploads", or its store a prefix, RedisStore(url, prefix="shop")',
        )
    own = _uses.setdefault(owner, {})
    if place in own and not instead:
        listed, hidden = own[place].listed | listed, own[place].unlisted | hidden
    own[place] = _Uses(reference(store), listed, hidden)


def owned(store: object) -> Iterator[tuple[str, Quota]]:
    """The quotas that living owners use on a store, each under the name of its limit."""
    listed: dict[tuple[str, str], Quota] = {}
    for _, uses in _living_at(_place_of(store)):
        if uses.store() is store:
            listed = uses.listed | listed
    return iter([(name, quota) for (name, _), quota in listed.items()])


def _place_of(store: object) -> Hashable:
    """What is equal for stores that share their buckets: the ``place`` of a store that has one, or its identity."""
    place: Hashable = getattr(store, "place", None)
    return id(store) if place is None else place


def _living_at(place: Hashable) -> Iterator[tuple[object, _Uses]]:
    """The living owners with living stores at a place: an identity is used again."""
    for owner_ref in list(_uses.keyrefs()):  # other threads may add owners
        owner = owner_ref()
        uses = None if owner is None else _uses.get(owner, {}).get(place)
        if owner is not None and uses is not None and uses.store() is not None:
            yield owner, uses
