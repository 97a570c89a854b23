"""What the scripts do where something goes wrong in between: an answer, a connection, the focus."""

import re

from playwright.sync_api import expect

from tests.control.calling import restarted
from tests.portal.browsing import address, needs_browser

pytestmark = needs_browser

FORESEE = re.compile("foresee=true")
HIDDEN = """is => {
    Object.defineProperty(document, 'hidden', {value: is, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def hidden(page, *, is_hidden):
    """Nobody sees the page, and so it is not connected; or somebody does again."""
    page.evaluate(HIDDEN, is_hidden)


def losing_the_first(page, path):
    """The first answer from there is lost on its way; by which keys it was asked for."""
    keys = []

    def answer(route):
        keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route(re.compile(path), answer)
    return keys


def test_a_lost_answer_makes_nothing_happen_twice(there, opened):
    """It is asked for again by the same key; and whoever uses the keyboard is where he was."""
    page = opened(address(there, "/vms/web-1"))
    keys = losing_the_first(page, "/restart$")
    opener = page.get_by_role("button", name="Restart web-1")
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Restart web-1")
    confirm.click()
    expect(dialog.get_by_text("It may be done already")).to_be_visible()
    expect(page.get_by_text("waits for")).to_be_attached()
    confirm.click()
    expect(dialog).to_be_hidden()
    assert keys[0]
    assert keys == [keys[0]] * 2
    assert len(there.run.service.fleet.operations) == 1
    expect(opener).to_be_focused()

    opener.evaluate("button => { button.before = true; }")
    (event,) = there.run.service.fleet.events
    there.post(f"/v1/events/{event}/cancel")
    expect(page.get_by_role("button", name="Cancel the Reboot of web-1")).to_be_hidden()
    assert not opener.evaluate("button => button.before === true")
    expect(opener).to_be_focused()


def test_a_lost_answer_starts_no_second_rollout(there, opened):
    """The dry run stands, and what was told is asked for again."""
    page = opened(address(there, "/rollouts"))
    page.get_by_label("node-5").check()
    page.get_by_role("button", name="Dry run").click()
    start = page.get_by_role("button", name="Start the rollout")
    expect(start).to_be_visible()
    keys = losing_the_first(page, "/v1/rollouts$")
    start.click()
    expect(page.get_by_text("The service does not answer.")).to_be_visible()
    start.click()
    expect(page.get_by_role("heading", name="host-update on")).to_be_visible()
    assert keys == [keys[0]] * 2
    assert len(there.run.service.fleet.rollouts) == 1


def test_nothing_is_confirmed_that_was_not_told(there, opened):
    """Neither before the first answer, nor after something else was chosen."""
    page = opened(address(there, "/nodes/node-3"))
    page.get_by_role("button", name="Maintain node-3").click()
    dialog = page.get_by_role("dialog")
    maintain = dialog.get_by_role("button", name="Maintain node-3")
    expect(maintain).to_be_enabled()
    held = []
    page.route(FORESEE, lambda route: held.append(route))  # noqa: PLW0108 - no builtin is taken
    with page.expect_request(FORESEE):
        dialog.get_by_label("Reboot: the node").check()
    expect(dialog.get_by_text("Asking what would happen")).to_be_visible()
    expect(maintain).to_be_disabled()
    expect(dialog.get_by_text("frozen for a moment")).to_be_hidden()
    for route in held:
        route.continue_()
    page.unroute_all()
    expect(dialog.get_by_text("rebooted together with node-3")).to_be_visible()
    expect(maintain).to_be_enabled()
    page.keyboard.press("Escape")

    page.route(FORESEE, lambda route: held.append(route))  # noqa: PLW0108 - no builtin is taken
    page.get_by_role("button", name="Declare failed: node-3").click()
    expect(dialog.get_by_text("Asking what would happen")).to_be_visible()
    expect(dialog.get_by_role("button", name="Declare failed: node-3")).to_be_disabled()
    assert "danger" in dialog.get_by_role("button", name="Declare failed: node-3").get_attribute(
        "class"
    )
    assert there.run.service.fleet.operations == {}


def test_what_was_missed_is_taken_away_and_silence_is_noticed(there, opened):
    """A page that was drawn by another process has nothing left that is over."""
    event = restarted(there)
    page = opened(address(there))
    page.clock.install()
    page.reload()
    connection = page.locator("#connection")
    expect(connection).to_have_text("live")
    row = page.get_by_role("row").filter(has_text="Reboot")
    expect(row).to_be_visible()
    hidden(page, is_hidden=True)
    there.post(f"/v1/events/{event}/cancel")
    page.evaluate("document.body.dataset.process = 'another'")
    hidden(page, is_hidden=False)
    expect(row).to_be_hidden()

    page.route(address(there), lambda route: route.abort())
    page.clock.fast_forward(13_000)
    expect(connection).to_contain_text("connection lost")
    page.unroute_all()
    expect(connection).to_have_text("live")


def test_a_page_of_what_is_gone_says_so_and_rests(there, opened):
    """It is asked for no more."""
    page = opened(address(there, "/vms/db"))
    expect(page.locator("#connection")).to_have_text("live")
    assert there.post("/v1/vms/db/delete").status == 202
    expect(page.get_by_text("It is not part of the fleet any more.")).to_be_visible()
    hidden(page, is_hidden=True)
    hidden(page, is_hidden=False)
    expect(page.locator("#connection")).to_have_text("not there any more")


def test_faults_of_everybody_are_ended_only_when_that_is_meant(there, opened):
    """One click asks first; others may have set them."""
    there.post("/v1/faults", {"fault": "slow", "seconds": 1})
    page = opened(address(there))
    clear = page.get_by_role("button", name="Clear all")
    page.once("dialog", lambda dialog: dialog.dismiss())
    clear.click()
    assert there.get("/v1/faults").json["items"]
    page.once("dialog", lambda dialog: dialog.accept())
    clear.click()
    expect(clear).to_have_count(0)
    assert there.get("/v1/faults").json["items"] == []
