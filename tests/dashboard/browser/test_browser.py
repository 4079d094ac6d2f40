"""The page in a real browser: what it shows, what it changes, and who can use it."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.dashboard.browser.conftest import PATIENT_MS, Site
from tests.support.redis_server import RedisServer
from tests.support.server import Uvicorn

pytestmark = pytest.mark.browser

expect.set_options(timeout=PATIENT_MS)


# How many requests to the login the page shows.
DECIDED = """() => {
  const rules = [...document.querySelectorAll(".rule")];
  const rule = rules.find((each) => each.querySelector(".rule-name").textContent === "login");
  const numbers = rule.querySelector(".rule-counts").textContent.matchAll(/([\\d,]+) (?:admitted|refused)/g);
  return [...numbers].reduce((sum, [, number]) => sum + Number(number.replace(",", "")), 0);
}"""


def test_a_page_shows_the_decisions_of_all_workers(site: Site) -> None:
    """A phone that loads the page after some requests shows all of them, and those that come later by themselves."""
    site.ask("/login", 5)
    with site.page("phone") as page:
        for total in (17, 24):
            page.wait_for_function(f"() => ({DECIDED})() === {total}")
            site.ask("/login", 7 if total == 17 else 0)


def test_it_keeps_to_its_own_policy_and_server(site: Site) -> None:
    """The browser has nothing to complain of, and asked no other host for anything."""
    site.problems.clear()
    site.hosts.clear()
    with site.page("desktop") as page:
        page.locator(".rule summary").first.click()
        page.get_by_label("2 minutes").check()
        page.get_by_label("24 hours").check()
        page.locator("#chart").hover()
        expect(page.locator(".chart canvas")).to_be_visible()
    assert site.problems == []
    assert site.hosts == {site.url.removeprefix("http://")}


def test_a_limit_is_tried_and_changed_with_the_keyboard_alone(site: Site) -> None:
    """The slider says what the limit would have refused, before it is applied; then the page shows the change."""
    with site.page("desktop") as page:
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        page.keyboard.press("Enter")
        summary = page.locator(".rule", has_text="login").locator("summary")
        while not summary.evaluate("element => element === document.activeElement"):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        form = page.locator(".rule", has_text="login").locator("form")
        for _ in range(2):
            page.keyboard.press("Tab")
        for _ in range(40):
            page.keyboard.press("ArrowRight")
        expect(form.locator("input[name=quota]")).to_have_value("5/minute")
        expect(form.locator(".what-if")).to_contain_text(re.compile(r"5/minute would have refused .* of .* requests"))
        form.locator("input[name=quota]").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#toast")).to_have_text("login is 5/minute now")
        expect(page.locator(".rule", has_text="login").locator(".badge")).to_have_text("changed")
        expect(page.locator("#changes li").first).to_contain_text("login what the program says → 5/minute")
        form.get_by_role("button", name="Back to 2/minute").click()
        expect(page.locator(".rule", has_text="login").locator(".badge")).to_have_count(0)
    assert [each["override"] for each in site.state()["rules"]] == [None, None]


def test_a_rule_is_switched_off_only_after_a_question(site: Site) -> None:
    """Cancelling changes nothing. Then both workers follow, until the rule is as before."""
    with site.page("phone") as page:
        page.locator(".rule", has_text="login").locator("summary").click()
        expect(page.locator(".rule", has_text="login").locator(".what-if")).not_to_be_empty()
        off = page.locator(".rule", has_text="login").get_by_role("button", name="Switch off")
        off.click()
        page.locator("#switch-off").get_by_role("button", name="Cancel").click()
        off.click()
        page.locator("#switch-off").get_by_role("button", name="Switch off").click()
        expect(page.locator(".rule", has_text="login").locator(".rule-limit")).to_contain_text("off")
        site.ask_until("/login", [200] * 12)
        page.get_by_role("button", name="Back to 2/minute").click()
        expect(page.locator(".rule", has_text="login").locator(".badge")).to_have_count(0)
        site.ask_until("/login", [429] * 12)
    assert len([change for change in site.state()["history"] if change["after"] and change["after"]["word"]]) == 1


@pytest.mark.parametrize(("size", "scheme"), [("phone", "light"), ("desktop", "dark")])
def test_it_is_accessible(site: Site, size: str, scheme: str) -> None:
    """axe finds nothing, with a rule or a dialog open. A long name of somebody who changed a limit widens nothing."""
    with site.page(size, scheme) as page:
        axe = Axe()
        page.locator(".rule summary").last.click()
        expect(page.locator(".rule[class] details[open] .what-if")).not_to_be_empty()
        assert axe.run(page).response["violations"] == []
        page.get_by_role("button", name=re.compile("Actions for .*")).first.click()
        expect(page.locator("#change-key")).to_be_visible()
        assert axe.run(page).response["violations"] == []
        page.keyboard.press("Escape")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.long
def test_a_page_says_when_its_server_is_gone_and_when_it_is_back(browser: Browser) -> None:
    """It need not be loaded again."""
    with RedisServer() as redis:
        server = Uvicorn("tests.support.page_app:app", env={"STORE": redis.url})
        with server:
            site = Site(server.url, browser)
            site.ask("/login", 3)

            with site.context() as opened:
                page = opened.new_page()
                page.goto(f"{site.url}/limits/")
                status = page.locator("#status")
                expect(status).to_contain_text("Live")
                server.stop()
                expect(status).to_have_text("The server does not answer")
                server.start()
                expect(status).to_contain_text("Live")
