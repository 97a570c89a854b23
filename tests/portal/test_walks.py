"""People at the portal, in a real browser: none of these walks reloads a page."""

import os
import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import expect

from tests.cli.test_up import control, lines, shell, started
from tests.control.calling import restarted
from tests.portal.browsing import (
    AXE,
    HOSTILE,
    address,
    approve,
    hostile_fleet,
    needs_browser,
    needs_npm,
    served,
)
from tests.ports import own_port

pytestmark = needs_browser

WIDTHS = (360, 1280, 2560)
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


def kept(page):
    """From now on a reload is noticed."""
    page.evaluate("window.kept = true")
    return lambda: page.evaluate("window.kept === true")


def confirmed(page, title):
    """Read what will happen, and confirm it."""
    dialog = page.get_by_role("dialog", name=title)
    expect(dialog.get_by_text("Earliest start:")).to_be_visible()
    dialog.get_by_role("button", name=title).click()
    expect(dialog).to_be_hidden()


def test_a_newcomers_walk(there, opened):
    """Open, restart a VM, see it announced, approve as the VM, see it started and gone, read it."""
    page = opened(address(there))
    is_kept = kept(page)
    expect(page.get_by_role("heading", name="All quiet")).to_be_visible()
    page.get_by_role("button", name="Restart web-0").click()
    said = page.get_by_role("dialog").get_by_text("Those who see it: web-0, web-1, web-2.")
    expect(said).to_be_visible()
    confirmed(page, "Restart web-0")

    row = page.get_by_role("row").filter(has_text="Reboot")
    expect(row).to_contain_text("waits for any of the 3 VMs of availability-set:web to approve")
    expect(page.locator(".lane").filter(has_text="availability-set:web")).to_be_visible()
    expect(row.locator("[data-until]")).to_have_text(re.compile(r"in \d+ s"))
    (event,) = there.run.service.fleet.events_in_scope["availability-set:web"]
    there.look("web-0")
    expect(row.locator(".seen-yes")).to_have_text("web-0✓ has seen it")
    approve(there, "web-0", event)

    expect(row).to_contain_text("Started")
    expect(row).to_contain_text("approved by web-0")
    expect(row).to_be_hidden()
    expect(page.get_by_role("heading", name="All quiet")).to_be_visible()
    assert is_kept()

    page.get_by_role("link", name="Completed Reboot of web-0").click()
    story = page.locator(".story")
    for step in ("announced: Reboot of web-0", "approved by web-0", "started, after", "gone"):
        expect(story).to_contain_text(step)
    expect(page.get_by_text("It was approved, so it started sooner.")).to_be_visible()


def test_two_browsers_see_the_same(there, opened):
    """What one does, the other sees, on whatever page."""
    one, other = opened(address(there)), opened(address(there, "/fleet"))
    vm = other.locator("#nodes-title ~ .domains").get_by_role("link", name="db", exact=False)
    expect(vm).to_have_class(re.compile("is-calm"))
    kept_one, kept_other = kept(one), kept(other)
    event = restarted(there, "db")
    expect(one.get_by_role("row").filter(has_text="vm:db")).to_be_visible()
    expect(vm).to_have_class(re.compile("is-scheduled"))
    one.get_by_role("button", name="Cancel the Reboot of db").click()
    one.get_by_role("dialog").get_by_role("button", name="Cancel the Reboot of db").click()
    expect(vm).to_have_class(re.compile("is-calm"))
    expect(one.get_by_role("heading", name="All quiet")).to_be_visible()
    assert there.get(f"/v1/events/{event}").json["status"] == "Canceled"
    assert kept_one()
    assert kept_other()


def test_the_service_is_killed_and_comes_back(tmp_path, opened):
    """The page says that it is alone, finds the service again, and shows what it missed."""
    options = ("--timing", "azure", "--control", f"127.0.0.1:{own_port()}")
    with started(tmp_path, *options) as (process, said):
        page = opened(control(said))
        is_kept = kept(page)
        expect(page.locator("#connection")).to_have_text("live")
        os.kill(process.pid, signal.SIGKILL)
        expect(page.locator("#connection")).to_contain_text("connection lost")
    with started(tmp_path, *options) as (_, said):
        read, restart, _ = lines(said)
        shell(read)
        shell(restart)
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.get_by_role("row").filter(has_text="Reboot")).to_be_visible()
        assert is_kept()


def test_a_node_is_maintained_with_the_keyboard_alone(there, opened):
    """Every step, the dialog too; and the focus returns to where it was."""
    page = opened(address(there, "/nodes/node-3"))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Maintain node-3")
    for _ in range(10):
        page.keyboard.press("Tab")
        if button.evaluate("button => button === document.activeElement"):
            break
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Maintain node-3")
    expect(dialog.get_by_text("frozen for a moment")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(dialog.get_by_text("rebooted together with node-3")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    assert there.run.service.fleet.operations == {}


def test_a_refusal_is_told_before_and_nothing_can_be_confirmed(there, opened):
    """In the words of the law."""
    there.post("/v1/nodes/node-0/maintain")
    page = opened(address(there, "/nodes/node-1"))
    page.get_by_role("button", name="Maintain node-1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("has another domain of")).to_be_visible()
    expect(dialog.get_by_role("button", name="Maintain node-1")).to_be_disabled()
    dialog.get_by_label("Also where another update domain").check()
    expect(dialog.get_by_role("button", name="Maintain node-1")).to_be_enabled()


def test_more_notice_is_given(there, opened):
    """From what was announced on, and the VMs see it."""
    event = restarted(there)
    before = there.get(f"/v1/events/{event}").json["not_before"]
    page = opened(address(there, f"/events/{event}"))
    page.get_by_role("button", name="Postpone the Reboot of web-0").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="+1 h").click()
    expect(dialog.get_by_text("at the earliest, not at")).to_be_visible()
    dialog.get_by_role("button", name="Postpone the Reboot of web-0").click()
    expect(page.locator(".story")).to_contain_text("postponed: not before")
    after = there.get(f"/v1/events/{event}").json["not_before"]
    assert datetime.fromisoformat(after) - datetime.fromisoformat(before) == timedelta(hours=1)


def test_a_rollout_from_the_dry_run_to_its_end(there, opened):
    """It says what would happen, starts, is paused and goes on."""
    page = opened(address(there, "/rollouts"))
    expect(page.get_by_role("checkbox", name="node-", checked=True)).to_have_count(0)
    page.get_by_label("node-5").check()
    page.get_by_label("node-3").check()
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("2 nodes are taken. It would be over at")).to_be_visible()
    assert there.run.service.fleet.rollouts == {}
    page.get_by_role("button", name="Start the rollout").click()
    expect(page.get_by_role("heading", name="host-update on 2 nodes")).to_be_visible()
    page.get_by_role("button", name="Pause the rollout").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause the rollout").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Resume the rollout")).to_be_visible()


def test_hostile_names_do_no_harm(opened):
    """They are shown as what they are, on every page, as parts that are sent later too."""
    with served() as there:
        page = opened(address(there))
        assert there.call("PUT", "/v1/fleet", hostile_fleet()).status == 200
        for name in HOSTILE.values():
            there.look(quote(name, safe=""))
            there.post(f"/v1/vms/{quote(name, safe='')}/restart")
        for name in HOSTILE.values():
            expect(page.get_by_role("row").filter(has_text=name).first).to_be_visible()
        assert page.title() == "Now · fairnotice"
        rollout = there.post("/v1/rollouts", {"nodes": list(HOSTILE.values())}).json["id"]
        paths = ["/fleet", "/history", "/rollouts", f"/rollouts/{rollout}"]
        for which in ("attribute", "long"):
            name = quote(HOSTILE[which], safe="")
            (event,) = there.run.service.fleet.events_in_scope[f"availability-set:{HOSTILE[which]}"]
            paths += [f"/vms/{name}", f"/nodes/{name}", f"/events/{event}"]
        page.set_viewport_size({"width": WIDTHS[0], "height": 800})
        for path in paths:
            page.goto(address(there, path))
            assert "hit" not in page.title().split("·")[-1]
            assert page.locator("main img, main script").count() == 0
            wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not wide, path


def violations(page):
    """What axe finds fault with: the rule, the element, and what to do."""
    found = page.evaluate("rules => axe.run(document, rules)", RULES)["violations"]
    return [
        (one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"]) for one in found
    ]


@needs_npm
def test_axe_finds_nothing_serious(there, opened, monkeypatch):
    """On every page, in light and in dark, in the dialog too, and where VMs are squares."""
    event = restarted(there)
    there.post("/v1/faults", {"fault": "slow", "seconds": 1})
    there.post("/v1/nodes/node-3/maintain")
    rollout = there.post("/v1/rollouts", {"nodes": ["node-2", "node-5"]}).json["id"]
    paths = ["/", "/fleet", "/vms/web-0", "/nodes/node-3", "/rollouts", "/history"]
    paths += [f"/events/{event}", f"/rollouts/{rollout}"]
    for scheme in ("light", "dark"):
        page = opened(address(there), color_scheme=scheme, bypass_csp=True)
        for path in paths:
            page.goto(address(there, path))
            page.add_script_tag(path=str(AXE))
            assert violations(page) == [], (path, scheme)
            if path == "/nodes/node-3":
                page.get_by_role("button", name="Repair node-3").click()
                expect(page.locator("#foresight li").first).to_be_visible()
                assert violations(page) == [], ("the dialog", scheme)
        with monkeypatch.context() as many:
            many.setattr("fairnotice.portal.fleet_page.DENSE_FROM_VMS", 5)
            page.goto(address(there, "/fleet"))
            page.add_script_tag(path=str(AXE))
            assert violations(page) == [], ("many VMs", scheme)


def test_the_main_pages_fit_at_three_widths(there, opened, tmp_path):
    """Nothing is wider than the window; PORTAL_PICTURES names a folder to look at them."""
    folder = Path(os.environ.get("PORTAL_PICTURES", tmp_path))
    narrow = opened(address(there), viewport={"width": WIDTHS[0], "height": 800})
    narrow.screenshot(path=folder / "quiet.png", full_page=True)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= WIDTHS[0]
    restarted(there)
    there.post("/v1/nodes/node-3/maintain", {"duration_seconds": 9})
    for scheme in ("light", "dark"):
        for width in WIDTHS:
            window = {"width": width, "height": 900}
            page = opened(address(there), viewport=window, color_scheme=scheme)
            for path in ("/", "/fleet", "/vms/web-0"):
                page.goto(address(there, path))
                expect(page.locator("#connection")).to_have_text("live")
                name = path.strip("/").replace("/", "-") or "now"
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
