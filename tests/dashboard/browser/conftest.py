"""A real Chromium, and a page served by two workers that share a Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.chromium import path
from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn

SIZES = {"phone": (390, 844), "desktop": (1440, 900)}
PATIENT_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium for one module: while it runs, no other test can have an event loop."""
    arguments = ["--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path(), args=arguments, timeout=PATIENT_MS)
        yield browser
        browser.close()


@dataclass
class Site:
    """A running app, and the browser that looks at it. ``problems`` are what a page has complained of."""

    url: str
    browser: Browser
    problems: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def ask(self, path: str, times: int = 1) -> list[int]:
        """The statuses of so many requests."""
        with httpx.Client(base_url=self.url, timeout=60) as client:
            return [client.get(path).status_code for _ in range(times)]

    def ask_until(self, path: str, statuses: list[int]) -> None:
        """Ask again and again, until both workers answer like this."""
        deadline = time.monotonic() + PATIENT_MS / 1000
        while self.ask(path, len(statuses)) != statuses:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is never answered with {statuses}")

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        state: dict[str, Any] = httpx.get(f"{self.url}/limits/state", headers={"x-role": "admin"}, timeout=60).json()
        return state

    @contextmanager
    def context(self, size: str = "phone", scheme: Any = "light") -> Iterator[BrowserContext]:
        """A browser of this size and colour scheme, which an admin uses."""
        width, height = SIZES[size]
        is_phone = size == "phone"
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            is_mobile=is_phone,
            has_touch=is_phone,
            color_scheme=scheme,
            extra_http_headers={"x-role": "admin"},
        )
        context.set_default_timeout(PATIENT_MS)
        yield context
        context.close()

    @contextmanager
    def page(self, size: str = "phone", scheme: Any = "light") -> Iterator[Page]:
        """The page, once it shows rules."""
        with self.context(size, scheme) as context:
            page = context.new_page()
            page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: self.problems.append(str(error)))
            page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
            page.goto(f"{self.url}/limits/")
            page.locator(".rule").first.wait_for()
            yield page


@pytest.fixture(scope="module")
def site(browser: Browser) -> Iterator[Site]:
    """Two workers on one Redis; a rule ``login`` has refused something."""
    with RedisServer() as redis:
        environment = {"STORE": redis.url}
        with Uvicorn("tests.support.page_app:app", "--workers", "2", env=environment) as server:
            made = Site(server.url, browser)
            made.ask("/login", 12)
            yield made
