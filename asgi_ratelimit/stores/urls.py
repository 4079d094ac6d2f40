"""URLs of stores: their parts, and how one is shown without its password, whatever is wrong with it."""

from __future__ import annotations

import re

from ..errors import ConfigurationError

_HOST = r"(?:[\w.-]+|\[[\w.:%]*\])(?::[1-9]\d{0,4})?"
URL_OF_REDIS = re.compile(
    rf"(?P<scheme>rediss?|unix)(?:\+(?P<kind>cluster|sentinel))?://(?P<credentials>[^/?#]*@)?"
    rf"(?P<hosts>(?:{_HOST}(?:,{_HOST})*)?)(?P<path>(?:/[^?#@]*)?)(?P<options>(?:\?[^#@]*)?)"
)
"""A URL whose parts are certain, so that none of them is a piece of a password."""

_EXAMPLES = (
    '"memory://", "redis://localhost:6379/0", "rediss://user:password@host:6380/0", "unix:///run/redis.sock", '
    '"redis+cluster://host1:6379,host2:6379" or "redis+sentinel://host1:26379,host2:26379/mymaster"'
)


def shown(url: object) -> str:
    """A URL as errors quote it: the user, the password, the options, and all that may be a part of them are hidden."""
    if not isinstance(url, str):
        return f"a {type(url).__module__}.{type(url).__qualname__}"
    found = URL_OF_REDIS.fullmatch(url)
    if found is None:
        beginning = re.match(r"\s*[a-z][a-z0-9+.-]*://", url, re.IGNORECASE)
        return repr(f"{beginning[0] if beginning else ''}***")
    scheme, _, hidden = url.partition("://")
    kept = hidden.removeprefix(found["credentials"] or "").removesuffix(found["options"])
    credentials, options = "***@" if found["credentials"] else "", "?***" if found["options"] else ""
    return repr(f"{scheme}://{credentials}{kept}{options}")


def no_url(url: object, problem: str = "") -> ConfigurationError:
    """The error for what is not the URL of a store, without its password."""
    quoted = '; a "/", "?", "#", "@" or ":" in a password is written as urllib.parse.quote(password, safe="") writes it'
    end = quoted if isinstance(url, str) and "@" in url else ""
    return ConfigurationError(f"{shown(url)} is not the URL of a store{problem}: {_EXAMPLES}{end}")
