"""The table of docs/server-limits.md is what the profiles say."""

from __future__ import annotations

import re

from asgi_ratelimit.profiles import PROFILES, Profile
from asgi_ratelimit.profiles.definitions import each_source
from tests.support.server import ROOT

PAGE = ROOT / "docs" / "server-limits.md"
LAST_PART = re.compile(r"(?<=[-.#])(?=[^-.#]*$)")
OF_DRAFTS = ("ietf", "jira")
ROW = re.compile(r"^\| \[`.*$", re.MULTILINE)


def test_the_table_is_what_the_profiles_say() -> None:
    """One row for each profile. Where it differs, the rows that it should have are printed."""
    rows = [row(profile) for profile in PROFILES.values()]
    assert ROW.findall(PAGE.read_text("utf-8")) == rows, "\n".join(rows)


def row(profile: Profile) -> str:
    """A profile as a row: its headers, what its resets mean, its refusals, and what says their scope."""
    refusals = sorted({status for refusal in profile.refusals for status in refusal.statuses})
    cells = [
        f"[`{profile.name}`]({profile.source})",
        "; ".join([*map("`{}`".format, drafts(profile)), *grouped(headers(profile))]),
        ", ".join(meanings(profile)),
        ", ".join(map(str, refusals)),
        ", ".join(f"`{source}`" for source in each_source(profile.scopes)),
    ]
    return f"| {' | '.join(cell or '–' for cell in cells)} |"


def headers(profile: Profile) -> list[str]:
    """The headers and fields of bodies that say limits, each once."""
    sources = [source for entry in profile.limits for source in entry.sources() if isinstance(source, str)]
    return list(dict.fromkeys(sources))


def drafts(profile: Profile) -> list[str]:
    """The headers in the syntax of the drafts, where that is what the profile is about."""
    return [*profile.drafts, *(f"{each}-policy" for each in profile.drafts)] if profile.name in OF_DRAFTS else []


def grouped(names: list[str]) -> list[str]:
    """Names that begin alike together, each with its last part."""
    groups: dict[str, list[str]] = {}
    for name in names:
        start, end = LAST_PART.split(name, maxsplit=1)
        groups.setdefault(start, []).append(end)
    return [f"`{start}`: {', '.join(ends)}" for start, ends in groups.items()]


def meanings(profile: Profile) -> list[str]:
    """What the resets of a profile mean, each once."""
    found = [entry.reset_means for entry in profile.limits if entry.reset]
    return list(dict.fromkeys([*(["next unit"] if profile.name in OF_DRAFTS else []), *found]))
