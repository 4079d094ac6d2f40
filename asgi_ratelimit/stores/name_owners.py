"""Which owners use which names on a store: two limits of one name must agree on what their buckets hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias
from weakref import WeakKeyDictionary

from ..errors import ConfigurationError
from ..quota_text import readable
from ..quotas import Quota
from .base import ByStore, Store, living

Uses: TypeAlias = dict[tuple[str, str], tuple[Quota, bool]]
"""By the names of a limit and of a quota, that quota, and whether ``owned`` yields it."""

_owners: ByStore[WeakKeyDictionary[object, Uses]] = ByStore()
"""What each living owner uses, by store."""


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
    Raises ``ConfigurationError`` if a living owner uses another quota of the same name under the same limit's name, and
    then changes nothing.
    """
    owners = _owners.made(store, lambda store: WeakKeyDictionary())
    new: Uses = {(name, quota.name): (quota, False) for name, quota in unlisted}
    new |= {(name, quota.name): (quota, True) for name, quota in quotas}
    for other, uses in living(owners):
        for names in uses.keys() & new.keys():
            before, quota = uses[names][0], new[names][0]
            if before != quota and other is not owner and not is_peer(other):
                raise ConfigurationError(
                    f"two limits named {names[0]!r} share a store and have different quotas named {names[1]!r}, "
                    f"{readable(before)} and {readable(quota)}, which would share buckets: give one of them another "
                    'name, name="uploads", or, in tests that build several apps, a store of its own'
                )
    owners[owner] = new if instead else owners.get(owner, {}) | new


def owned(store: Store) -> Iterator[tuple[str, Quota]]:
    """The quotas that living owners use on a store, each under the name of its limit."""
    listed: dict[tuple[str, str], Quota] = {}
    for _, uses in living(_owners[store]) if store in _owners else ():
        listed = {names: quota for names, (quota, is_listed) in uses.items() if is_listed} | listed
    return iter([(name, quota) for (name, _), quota in listed.items()])
