"""Which owners use which names on a store: two limits of one name must agree on what their buckets hold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeAlias
from weakref import ref

from ..errors import ConfigurationError
from ..logs import warn_once
from ..quota_text import readable
from ..quotas import Quota, TokenBucket
from . import Store
from .by_store import reference

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


def register(store: Store, owner: object, quotas: Iterable[tuple[str, Quota]]) -> None:
    """Register ``owner``, for as long as it lives, as a user of these quotas, each under the name of its limit.

    The owner is held weakly, and so is the store, if it can be. A store need not be hashable. Raises
    ``ConfigurationError`` if a living owner uses another quota of the same name under the same limit's name, and then
    registers nothing. If its store is another object that leads to the same buckets, this is only logged: a program may
    stand in for two versions of an app, for example in a test.
    """
    _register(store, owner, {True: list(quotas)}, _nobody)


def register_instead(
    store: Store,
    owner: object,
    quotas: Iterable[tuple[str, Quota]],
    is_peer: Callable[[object], bool],
    unlisted: Iterable[tuple[str, Quota]] = (),
) -> None:
    """Register ``owner`` as a user of these quotas, instead of all that it has used on this store before.

    ``is_peer`` says that another owner is about to change as this one does, and need not agree yet. ``owned`` does not
    yield what is ``unlisted``. Raises ``ConfigurationError`` as ``register`` does, and then changes nothing.
    """
    by_listing = {False: list(unlisted), True: list(quotas)}
    _register(store, owner, by_listing, is_peer)
    place = _place_of(store)
    names = {(place, name, quota.name) for name, quota in chain(*by_listing.values())}
    for buckets in [each for each in _uses.copy() if each[0] == place and each not in names]:
        _set_uses(buckets, [use for use in _uses.get(buckets, ()) if use.owner() is not owner])


def _register(
    store: Store,
    owner: object,
    by_listing: Mapping[bool, Sequence[tuple[str, Quota]]],
    is_peer: Callable[[object], bool],
) -> None:
    """Register these quotas, by whether ``owned`` yields them; where a name has both kinds, the last one counts."""
    place, named = _place_of(store), chain(*by_listing.values())
    others = {(name, quota): _other_uses(place, name, owner, quota, is_peer) for name, quota in named}
    for (name, quota), uses in others.items():
        _require_agreement(name, quota, [use for use in uses if use.store() is store])
    for (name, quota), uses in others.items():
        if uses:
            _warn_of_place(name, quota, uses[0].quota)
    for is_listed, quotas in by_listing.items():
        for name, quota in quotas:
            buckets = place, name, quota.name
            others_here = [use for use in _uses.get(buckets, ()) if use.owner() is not owner]
            owner_ref = ref(owner, partial(_remove_dead, buckets))
            _uses[buckets] = [*others_here, _Use(owner_ref, reference(store), quota, is_listed)]


def _place_of(store: object) -> Hashable:
    """What is equal for stores that share their buckets: the ``place`` of a store that has one, or its identity."""
    place: Hashable = getattr(store, "place", None)
    return id(store) if place is None else place


def _nobody(owner: object) -> bool:
    return False


def _other_uses(
    place: Hashable, name: str, owner: object, quota: Quota, is_peer: Callable[[object], bool]
) -> list[_Use]:
    """The uses of other quotas under these names, by other living owners."""
    uses = _uses.get((place, name, quota.name), ())
    return [use for use in uses if use.quota != quota and _is_other(use.owner(), owner, is_peer) and _is_at(use, place)]


def _is_other(living: object, owner: object, is_peer: Callable[[object], bool]) -> bool:
    return living is not None and living is not owner and not is_peer(living)


def _is_at(use: _Use, place: Hashable) -> bool:
    """Whether the store of a use lives, and is at this place: identities are used again."""
    store = use.store()
    return store is not None and _place_of(store) == place


def _require_agreement(name: str, quota: Quota, others: Sequence[_Use]) -> None:
    if others:
        other = others[0].quota
        raise ConfigurationError(
            f"two limits named {name!r} share a store and have different quotas named {quota.name!r}, "
            f"{readable(other)} and {readable(quota)}, which would share buckets: give one of them another name, "
            f'name="uploads", or, in tests that build several apps, a store of its own{_hint(quota, other)}'
        )


def _warn_of_place(name: str, quota: Quota, other: Quota) -> None:
    warn_once(
        "a-name-with-two-quotas",
        f"two limits named {name!r} have different quotas named {quota.name!r}, {readable(other)} and "
        f"{readable(quota)}, and share their buckets, because their stores are at the same Redis: give one of them "
        f'another name, name="uploads", or its store a prefix, RedisStore(url, prefix="shop"){_hint(quota, other)}',
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
    _set_uses(buckets, [use for use in _uses.get(buckets, ()) if use.owner() is not None])


def _set_uses(buckets: _Buckets, uses: list[_Use]) -> None:
    """Set all uses of a quota."""
    if uses:
        _uses[buckets] = uses
    else:
        _uses.pop(buckets, None)


def owned(store: object) -> Iterator[tuple[str, Quota]]:
    """The quotas that living owners use on a store, each under the name of its limit."""
    for (place, name, _), uses in _uses.copy().items():  # while making a list, owners could go
        if place == _place_of(store):
            listed = [use for use in uses if use.is_listed]
            living = [use.quota for use in listed if use.owner() is not None and use.store() is store]
            if living:
                yield name, living[0]
