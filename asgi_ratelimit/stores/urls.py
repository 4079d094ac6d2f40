"""URLs of stores: the schemes of Redis, and how a URL is shown, without its password, whatever is wrong with it."""

from __future__ import annotations

import re

SCHEMES = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)
"""The URL schemes of Redis."""

_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_HOST = r"(?:[\w.-]*|\[[\w.:]*\])(?::\d{1,5})?"
_REST = re.compile(rf"(?P<credentials>[^/?#]*@)?(?P<target>{_HOST}(?:,{_HOST})*(?:/[^?#@]*)?)(?P<options>\?[^#@]*)?")
"""What follows the scheme of a URL whose parts are certain."""


def shown(url: object) -> str:
    """A URL as errors quote it: the user, the password, the options, and all that may be a part of them are hidden."""
    if isinstance(url, bytes):
        return f"b{shown(url.decode('latin-1'))}"
    if not isinstance(url, str):
        return f"a {type(url).__module__}.{type(url).__qualname__}"
    found = _SCHEME.match(url)
    scheme = found[0] if found else ""
    rest = _REST.fullmatch(url[len(scheme) :])
    if rest is None:
        return repr(f"{scheme}***")
    return repr(f"{scheme}{'***@' if rest['credentials'] else ''}{rest['target']}{'?***' if rest['options'] else ''}")
