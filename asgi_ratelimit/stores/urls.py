"""URLs of stores: how they are read, and how one is shown without its password, whatever is wrong with it."""

from __future__ import annotations

import re
from urllib.parse import unquote

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
_HOST = r"(?:[\w.-]*|\[[\w.:%]*\])(?::[1-9]\d{0,4})?"
_REST = re.compile(
    rf"(?P<credentials>[^/?#]*@)?(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<path>/[^?#@]*)?(?P<options>\?[^#]*)?"
)
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
    if rest is None or "@" in (rest["options"] or ""):
        return repr(f"{scheme}***")
    credentials, options = "***@" if rest["credentials"] else "", "?***" if rest["options"] else ""
    return repr(f"{scheme}{credentials}{rest['hosts']}{rest['path'] or ''}{options}")


def url_of_each_host(url: str) -> tuple[str, list[str]]:
    """The service of sentinels, and a URL of each host, as redis-py reads it.

    Raises ``ValueError`` for what redis-py would read as something else: it ignores a path that is no number, and takes
    the default for a host that is missing.
    """
    scheme, _, text = url.partition("://")
    base, _, kind = scheme.partition("+")
    rest = _REST.fullmatch(text)
    if rest is None or scheme not in SCHEMES:
        raise ValueError(url)
    credentials, hosts, path, options = [part or "" for part in rest.group("credentials", "hosts", "path", "options")]
    each_host, service = hosts.split(","), ""
    if kind == "sentinel":
        service, _, database = unquote(path).strip("/").partition("/")
        path = f"/{database}"
    if base == "unix":
        is_right = not hosts and path.strip("/") != ""
    else:
        is_right = re.fullmatch("/?[0-9]*", path) is not None and bool(service) is (kind == "sentinel")
        is_right = is_right and (kind != "" or len(each_host) == 1) and (all(each_host) or not (credentials or kind))
    if not is_right or not all("=" in option for option in options[1:].split("&") if options[1:]):
        raise ValueError(url)
    return service, [f"{base}://{credentials}{host}{path}{options}" for host in each_host]
