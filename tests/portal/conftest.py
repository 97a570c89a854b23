"""What the tests of the portal are handed: one browser per file, which complains of any mistake."""

import os

import pytest

from tests.portal.browsing import CHROMIUM, served


@pytest.fixture(scope="module")
def chromium():
    """A browser."""
    from playwright.sync_api import expect, sync_playwright  # noqa: PLC0415 - where it is needed

    # A shared machine may be slow; a page that never gets there fails all the same.
    expect.set_options(timeout=15_000)

    # Root may not run it in its sandbox, and continuous integration is root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Open a page in a window of its own; at the end no script may have failed in any."""
    windows, failed = [], []

    def open_page(url, **options):
        window = chromium.new_context(**options)
        windows.append(window)
        page = window.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on("console", lambda said: failed.append(said.text) if _is_fault(said) else None)
        page.goto(url)
        return page

    yield open_page
    for window in windows:
        window.close()
    assert failed == []


def _is_fault(said):
    # A refusal of the API, or a service that is gone, is no fault of the page's.
    return said.type == "error" and "Failed to load resource" not in said.text


@pytest.fixture
def there():
    """A service of the test's own."""
    with served() as service:
        yield service
