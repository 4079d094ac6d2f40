"""The networks of CDNs, by their words."""

from __future__ import annotations

import tomllib
from datetime import date
from ipaddress import ip_network

import pytest

from asgi_ratelimit import client_ip
from asgi_ratelimit.keys.addresses import cdn_networks
from tests.support.asgi import http
from tests.support.server import ROOT

WORDS = {"cloudflare": "173.245.48.9", "cloudfront": "2600:9000:1000::9", "fastly": "2a04:4e40::9"}


@pytest.mark.parametrize(("word", "proxy"), WORDS.items())
def test_a_word_stands_for_the_networks_of_a_cdn(word: str, proxy: str) -> None:
    """Alone or beside others; whatever is not in them is not trusted."""
    key = client_ip(trusted_proxies=["10.0.0.0/8", word])
    forwarded = [(b"x-forwarded-for", b"198.51.100.1, " + proxy.encode())]
    assert key.of(http(client=(proxy, 1), headers=forwarded)) == "198.51.100.1"
    assert key.of(http(client=("10.0.0.1", 1), headers=forwarded)) == "198.51.100.1"
    assert key.of(http(client=("192.0.2.1", 1), headers=forwarded)) == "192.0.2.1"


def test_the_file_is_dated_and_holds_public_networks() -> None:
    """Each list has a date and a source, no network twice, and none that is wide or private."""
    entries = tomllib.loads((ROOT / "asgi_ratelimit" / "keys" / "cdn_networks.toml").read_text("utf-8"))
    assert set(entries) == set(WORDS) == set(cdn_networks())
    for word, entry in entries.items():
        networks = [ip_network(text) for text in cdn_networks()[word]]
        assert isinstance(entry["date"], date)
        assert entry["source"].startswith("https://")
        assert len(set(networks)) == len(networks)
        assert all(each.is_global and each.prefixlen >= 12 for each in networks)


def test_docs_name_the_words_and_the_dates() -> None:
    """The page on keys says which words there are, and how old their lists are."""
    page = (ROOT / "docs" / "keys.md").read_text("utf-8")
    entries = tomllib.loads((ROOT / "asgi_ratelimit" / "keys" / "cdn_networks.toml").read_text("utf-8"))
    for word, entry in entries.items():
        assert f'`"{word}"`' in page
        assert str(entry["date"]) in page
