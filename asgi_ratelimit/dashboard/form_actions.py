"""The actions of the page's forms: each takes the fields, and returns a sentence that says what was done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..decision import Charge
from ..inbound import Blocks
from ..overrides import quotas_under
from ..quota_text import RESERVED_NAMES, as_quotas, parse_period
from ..quotas import Quota
from ..stores import Store, reset
from ..stores.name_owners import owned
from .page_state import PageState
from .summaries import KeyCounts

Fields: TypeAlias = Mapping[str, str]

_NO_RULE = "no process on this store has a rule of this name"
_NO_PENALTY = 'the rule has no Penalty, and checks for no blocks, Rule(..., penalty=Penalty("10 minutes", after=5))'


@dataclass(frozen=True, slots=True)
class Actions:
    """The forms of a page. Each action raises ``ValueError`` for invalid fields, and may raise ``StoreError``.

    ``by`` is who sent the form, if that is known.
    """

    store: Store
    state: PageState

    def named(self, name: str) -> Callable[[Fields, str | None], Awaitable[str]] | None:
        """The action of a form; ``None`` if there is no such form."""
        actions = {"set": self.set, "unset": self.unset, "reset": self.reset, "block": self.block, "lift": self.lift}
        return actions.get(name)

    async def set(self, fields: Fields, by: str | None) -> str:
        """Set the limit of a rule, for a while or until it is unset."""
        name, quota, lasts = _field(fields, "rule"), _field(fields, "quota"), fields.get("for", "")
        seconds = parse_period(lasts) if lasts else None
        await self.state.overrides.set(name, quota, seconds=seconds, by=by)
        return f"{name} is {quota} now" + (f", for {lasts}" if lasts else "")

    async def unset(self, fields: Fields, by: str | None) -> str:
        """Let the limit of the program apply again."""
        name = _field(fields, "rule")
        had_one = await self.state.overrides.unset(name, by=by)
        return f"{name} is as the program says" + ("" if had_one else ", as before")

    async def reset(self, fields: Fields, by: str | None) -> str:  # noqa: ARG002  # all actions have it
        """Forget what a key has used of a rule."""
        name, key, row = await self._key(fields)
        charges = [Charge(quota, key, 1, name) for quota in await self._quotas(name)]
        if row is not None and all(charge.bucket != row.bucket for charge in charges):
            quota = charges[0].quota if charges else as_quotas("1/s")[0]
            charges.append(Charge(quota, key, 1, name))
            charges[-1].bucket = row.bucket
        if not charges:
            raise ValueError(f"no process on this store has a rule named {name!r}")
        await reset(self.store, charges)
        return f"{_shown(fields)} has used nothing of {name} now"

    async def block(self, fields: Fields, by: str | None) -> str:  # noqa: ARG002  # all actions have it
        """Block a key of a rule for a while."""
        name, key, _ = await self._key(fields)
        lasts = _field(fields, "for")
        is_new = await Blocks(store=self.store, name=name).block(key, lasts)
        done = f"is blocked by {name} for {lasts}" if is_new else "was blocked already"
        rule = await self.state.rule(name)
        if rule is None or not rule.has_penalty:
            done += f", but it can still send requests: {_NO_PENALTY if rule else _NO_RULE}"
        return f"{_shown(fields)} {done}"

    async def lift(self, fields: Fields, by: str | None) -> str:  # noqa: ARG002  # all actions have it
        """Let a blocked key pass again."""
        name, key, _ = await self._key(fields)
        await Blocks(store=self.store, name=name).lift(key)
        return f"{_shown(fields)} is not blocked by {name}"

    async def _key(self, fields: Fields) -> tuple[str, str, KeyCounts | None]:
        """The rule and the key that a form names, and the row of the page that it was sent from, if any."""
        identity = fields.get("id")
        if not identity:
            return _field(fields, "rule"), _field(fields, "key"), None
        row = await self.state.key(identity)
        if row is None:
            raise ValueError("this key is not among those of the last hour any more: type it")
        if row.key is None:
            raise ValueError("the store holds only a hash of this key: type the key itself")
        return row.rule, row.key, row

    async def _quotas(self, name: str) -> list[Quota]:
        """The quotas that a key of a rule may have used: those of the program, and those of an override."""
        rule = await self.state.rule(name)
        own = [quota for owner, quota in owned(self.store) if owner == name and quota.name not in RESERVED_NAMES]
        if not own and rule is not None and rule.quotas:
            own = list(as_quotas(rule.quotas))
        override = (await self.state.overrides.all()).get(name)
        others = [] if override is None or override.word else quotas_under(override, own)
        return list({(quota.name, quota.kind): quota for quota in [*own, *others]}.values())


def _field(fields: Fields, name: str) -> str:
    """A field that must not be empty."""
    value = fields.get(name, "").strip()
    if not value:
        raise ValueError(f"the field {name!r} is empty")
    return value


def _shown(fields: Fields) -> str:
    return fields.get("key") or f"key {fields.get('id')}"
