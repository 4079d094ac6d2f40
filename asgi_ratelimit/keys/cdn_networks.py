"""The networks of large CDNs, by one word for each: from ``cdn_networks.toml``, a dated copy of what they publish."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files


@cache
def cdn_networks() -> dict[str, tuple[str, ...]]:
    """The networks of each CDN by its word. The file is read at first use."""
    text = files("asgi_ratelimit.keys").joinpath("cdn_networks.toml").read_text("utf-8")
    return {word: tuple(entry["networks"].split()) for word, entry in tomllib.loads(text).items()}
