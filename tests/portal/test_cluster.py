"""The portal of several control planes, as in production: over TLS, with tokens, on PostgreSQL."""

import ssl
from contextlib import ExitStack

from playwright.sync_api import expect

from fairnotice.stores.opening import open_store
from tests.cli.serves import FLEET, certificate, serves
from tests.cli.test_serve import CLUSTER
from tests.control.bearers import kept
from tests.portal.browsing import needs_browser
from tests.ports import own_port
from tests.waiting import until


@needs_browser
def test_the_page_of_a_follower_acts_and_goes_on_when_the_leader_ends(
    tmp_path, postgres_url, opened
):
    """One session is good for both, in a cookie that goes nowhere without TLS."""
    files = dict(zip(("certificate", "key"), certificate(tmp_path / "tls"), strict=True))
    trust = ssl.create_default_context(cafile=files["certificate"])
    with ExitStack() as stack:
        members = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            text = CLUSTER.format(url=postgres_url, port=own_port(), **files)
            text = text.replace("required = false", "required = true")
            members.append(stack.enter_context(serves(tmp_path / name, text)))
            until(lambda: members[0].call("GET", "/readyz", trust=trust).status == 200)
        leader, other = members
        store = open_store(postgres_url)
        token = kept(store, "olga")
        store.close()
        bearer = {"Authorization": f"Bearer {token}"}
        assert leader.call("PUT", "/v1/fleet", FLEET, trust=trust, **bearer).status == 200
        urls = [f"https://{host}:{port}" for host, port in (leader.control, other.control)]

        page = opened(f"{urls[1]}/nodes/n", ignore_https_errors=True)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        (cookie,) = page.context.cookies()
        assert (cookie["name"], cookie["secure"]) == ("__Host-fairnotice", True)
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.get_by_role("button", name="Cordon n").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("No VM is put on n from now on.")).to_be_visible()
        dialog.get_by_role("button", name="Cordon n").click()
        expect(page.get_by_text("cordoned", exact=True)).to_be_visible()

        second = page.context.new_page()
        second.goto(f"{urls[0]}/nodes/n")
        expect(second.get_by_text("cordoned", exact=True)).to_be_visible()
        assert leader.end() == 0
        page.get_by_role("button", name="Return to service: n").click()
        confirm = dialog.get_by_role("button", name="Return to service: n")
        expect(confirm).to_be_enabled(timeout=20_000)
        confirm.click()
        expect(page.get_by_text("in service", exact=True)).to_be_visible()
        assert other.end() == 0
