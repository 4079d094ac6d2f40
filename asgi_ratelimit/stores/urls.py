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

HIDDEN = "***"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(?=://)", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"[\w./-]*(:\d{1,5})?(/\d*)?")
_HOST = r"(?:[\w.-]*|\[[\w.:]*\])(?::[^,:\[\]]*)?"
_HOSTS = re.compile(f"{_HOST}(?:,{_HOST})*")
_PORT = re.compile(r"(?<=:)(?!\d{1,5}(?:,|\Z))[^,:\]]*(?=,|\Z)")
_SHOWN_OPTIONS = re.compile(
    r"db|protocol|(?:sentinel_)?ssl_(?!password|keyfile|ca_data)\w+|\w*timeout|max_connections|encoding"
)


def shown(url: object) -> str:
    """A URL as errors quote it: the user, the password, and everything that may be a part of them are hidden.

    That is the text before the last "@", the values of all options except harmless ones, and a port that is not a
    number: it is what is left of ``user:password`` if the host was forgotten.
    """
    if isinstance(url, bytes):
        return f"b{shown(url.decode('latin-1'))}"
    if not isinstance(url, str):
        return f"a {type(url).__module__}.{type(url).__qualname__}"
    text = url.lstrip()
    return repr(url[: len(url) - len(text)] + _visible(text))


def _visible(url: str) -> str:
    scheme = _SCHEME.match(url)
    rest = url[scheme.end() + 3 :] if scheme else url
    credentials, at, target = rest.rpartition("@")
    is_plain = scheme is not None or _HOST_AND_PORT.fullmatch(rest) is not None
    if set("?#") & set(credentials) or not is_plain:
        return f"{scheme[0]}://{HIDDEN}" if scheme else _without_slashes(url)
    hosts_and_path, question, query = target.partition("#")[0].partition("?")
    hosts, slash, path = hosts_and_path.partition("/")
    hosts = _PORT.sub(HIDDEN, hosts) if _HOSTS.fullmatch(hosts) else HIDDEN
    options = "&".join(map(_shown_option, query.split("&"))) if query else ""
    prefix = f"{scheme[0]}://" if scheme else ""
    return f"{prefix}{HIDDEN + at if at else ''}{hosts}{slash}{path}{question}{options}"


def _without_slashes(url: str) -> str:
    """A URL whose scheme has a colon, and lacks a slash: only a scheme of Redis is no part of the credentials."""
    scheme, colon, _ = url.partition(":")
    return f"{scheme}:{HIDDEN}" if colon and scheme in SCHEMES else HIDDEN


def _shown_option(option: str) -> str:
    name, equals, _ = option.partition("=")
    if not equals:
        return HIDDEN
    return option if _SHOWN_OPTIONS.fullmatch(name) else f"{name}={HIDDEN}"
