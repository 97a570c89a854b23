"""Signing in with a token: what the cookie is, what it is good for, and when it ends."""

import re
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from fairnotice.clock import SystemClock
from fairnotice.control import audits
from fairnotice.stores.memory import MemoryStore
from tests.control.bearers import Bearers, kept
from tests.portal.browsing import address, needs_browser, served

FORM = {"Content_Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def asking():
    """A service that wants tokens, and somebody of each kind."""
    store = MemoryStore()
    with served(store=store, auth=True) as there:
        yield Bearers(there, store)


def signed_in(asking, who, **headers):
    """The answer to somebody who signs in."""
    body = urlencode({"token": asking.texts[who]}).encode()
    return asking.served.call("POST", "/sign-in?next=/fleet", body, **FORM, **headers)


def cookie_of(answer):
    """What a browser would send back."""
    found = SimpleCookie(answer.headers["set-cookie"])
    return "; ".join(f"{name}={one.value}" for name, one in found.items())


def csrf_of(asking, cookie):
    """The word that a page of this session shows."""
    page = asking.served.get("/", Cookie=cookie)
    assert page.status == 200, page
    return re.search(rb'data-csrf="([0-9a-f]{64})"', page.body)[1].decode()


def test_whoever_has_not_signed_in_is_asked_to(asking):
    """And comes to where he wanted; the API says what it says to everybody."""
    answer = asking.served.get("/vms/web-0?api-version=2019-01-01")
    assert answer.status == 303
    assert answer.headers["location"] == ("/sign-in?next=%2Fvms%2Fweb-0%3Fapi-version%3D2019-01-01")
    assert asking.served.get("/v1/vms").problem["status"] == 401
    assert asking.served.get("/live?page=/").status == 401
    assert b'type="password"' in asking.served.get("/sign-in").body


def test_the_cookie_is_out_of_reach(asking):
    """No script reads it, no other site has it sent; under TLS it goes nowhere else."""
    answer = signed_in(asking, "reader")
    assert answer.status == 303
    assert answer.headers["location"] == "/fleet"
    plain = answer.headers["set-cookie"]
    assert plain.startswith("fairnotice=")
    for word in ("HttpOnly", "Path=/", "SameSite=strict", "Max-Age=43200"):
        assert word in plain
    host = str(asking.served.run.control)
    secure = signed_in(asking, "reader", Origin=f"https://{host}").headers["set-cookie"]
    assert secure.startswith("__Host-fairnotice=")
    assert "Secure" in secure


def test_under_tls_only_a_cookie_is_believed_that_came_by_tls(asking):
    """Another one may have been put there by whoever speaks for this host name without."""
    token = asking.texts["reader"]
    planted, ours = f"fairnotice={token}", f"__Host-fairnotice={token}"
    through = {"X_Forwarded_Proto": "https"}
    assert asking.served.get("/", Cookie=planted).status == 200
    assert asking.served.get("/", Cookie=planted, **through).status == 303
    assert asking.served.get("/", Cookie=f"{planted}; {ours}", **through).status == 200


def test_what_is_asked_for_by_cookie_is_kept_nowhere(asking):
    """A cache keeps away from what came by a token's header without being told."""
    cookie = cookie_of(signed_in(asking, "reader"))
    answer = asking.served.get("/v1/vms", Cookie=cookie)
    assert answer.json["items"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("who", ["malformed", "unknown", "wrong", "expired", "revoked"])
def test_a_token_that_does_not_count_is_refused(asking, who):
    """In the same words, whatever is wrong with it; and it is written down."""
    answer = signed_in(asking, who)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert b"This token does not count" in answer.body
    cookie = f"fairnotice={asking.texts[who]}"
    assert asking.served.get("/", Cookie=cookie).status == 303


def test_signing_in_again_and_again_fills_nothing(asking, monkeypatch):
    """Whoever has a token and a script."""
    monkeypatch.setattr(audits, "AT_ONCE_MAX", 2)
    monkeypatch.setattr(audits, "A_SECOND", 0.0)
    asking.texts["often"] = kept(asking.store, "often", "reader")
    for _ in range(5):
        assert signed_in(asking, "often").status == 303
    assert len(asking.ask("admin", "get", "/v1/audit?who=often").json["items"]) == 2


def test_another_site_signs_nobody_in(asking):
    """Nor is anybody sent to another site."""
    assert signed_in(asking, "reader", Origin="https://evil.example").status == 403
    body = urlencode({"token": asking.texts["reader"]}).encode()
    for onward in ("//evil.example", "https://evil.example", "/\\evil.example"):
        path = f"/sign-in?{urlencode({'next': onward})}"
        answer = asking.served.call("POST", path, body, **FORM)
        assert answer.headers["location"] == "/"


def test_what_changes_something_needs_the_word_of_a_page(asking):
    """A cookie alone does nothing; with the word it does what its role may."""
    cookie = cookie_of(signed_in(asking, "operator"))
    word = csrf_of(asking, cookie)
    path = "/v1/vms/db/restart?foresee=true"
    assert asking.served.post(path, Cookie=cookie).problem["status"] == 403
    wrong = asking.served.post(path, Cookie=cookie, X_CSRF_Token=word[:-1] + "x")
    assert wrong.problem["type"].endswith(":foreign")
    assert asking.served.post(path, Cookie=cookie, X_CSRF_Token=word).status == 200
    for method, other in (("DELETE", "/v1/faults"), ("PUT", "/v1/fleet"), ("PATCH", "/v1/fleet")):
        foreign = asking.served.call(method, other, {}, Cookie=cookie)
        assert foreign.problem["type"].endswith(":foreign"), method
    # A program needs none: no page of another site can send its header.
    assert asking.ask("operator", "POST", path).status == 200


def test_a_reader_cannot_act(asking):
    """He is offered nothing, and what he asks for all the same is refused."""
    cookie = cookie_of(signed_in(asking, "reader"))
    for path in ("/", "/fleet", "/vms/web-0", "/nodes/node-0", "/rollouts", "/history"):
        page = asking.served.get(path, Cookie=cookie)
        assert page.status == 200
        assert b"data-act=" not in page.body, path
        assert b"Sign out" in page.body
    word = csrf_of(asking, cookie)
    refused = asking.served.post("/v1/vms/web-0/restart", Cookie=cookie, X_CSRF_Token=word)
    assert refused.problem["status"] == 403
    assert asking.served.run.service.fleet.operations == {}


@pytest.mark.parametrize("who", ["limited", "endpoint"])
def test_who_may_see_a_part_is_told_so(asking, who):
    """The pages show all there is: he is not signed in, and a cookie of his own is no help."""
    refused = signed_in(asking, who)
    page = asking.served.get("/", Cookie=f"fairnotice={asking.texts[who]}")
    for answer in (refused, page):
        assert answer.status == 403
        assert b"limited to a part" in answer.body
        assert "set-cookie" not in answer.headers


def test_a_cookie_that_is_none_does_no_harm(asking):
    """Nothing of it becomes a header."""
    for cookie in ('fairnotice="a\\015\\012X: y"', "fairnotice=", "=;;;", "fairnotice=a b"):
        assert asking.served.get("/", Cookie=cookie).status == 303


def test_whoever_signs_out_is_out(asking):
    """By a form of ours."""
    cookie = cookie_of(signed_in(asking, "reader"))
    foreign = asking.served.call("POST", "/sign-out", b"csrf=x", Cookie=cookie, **FORM)
    assert foreign.status == 403
    assert "set-cookie" not in foreign.headers
    body = urlencode({"csrf": csrf_of(asking, cookie)}).encode()
    answer = asking.served.call("POST", "/sign-out", body, Cookie=cookie, **FORM)
    assert answer.headers["location"] == "/sign-in"
    assert "Max-Age=0" in answer.headers["set-cookie"]


@needs_browser
def test_a_reader_has_nothing_to_click(asking, opened):
    """And what a script of his page asks for is refused."""
    page = opened(address(asking.served, "/vms/db"))
    page.get_by_label("Token").fill(asking.texts["reader"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="db", exact=True)).to_be_visible()
    assert page.locator("[data-act]").count() == 0
    ask = """async () => (await fetch('/v1/vms/db/restart', {
        method: 'POST', headers: {'X-CSRF-Token': document.body.dataset.csrf}})).status"""
    assert page.evaluate(ask) == 403
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert page.context.cookies() == []


@needs_browser
def test_a_session_ends_when_its_token_is_revoked(asking, opened):
    """The operator signs in, acts, and is asked to sign in again; nothing is left to click."""
    there = asking.served
    page = opened(address(there, "/vms/db"))
    page.get_by_label("Token").fill(asking.texts["admin"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="db", exact=True)).to_be_visible()
    expect(page.locator("#connection")).to_have_text("live")
    page.get_by_role("button", name="Restart db").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Restart db").click()
    expect(page.get_by_role("button", name="Cancel the Reboot of db")).to_be_visible()
    (token,) = [one for one in asking.store.tokens().tokens if one.name == "admin-1"]
    asking.store.revoke_token(token.id, SystemClock().wall())
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=15_000)
