"""`conform`: a client that is right survives everything, a broken one fails for its own reason."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairnotice.errors import UnknownName, UsageError
from fairnotice.testing.conform import SITUATIONS, Declared, Verdict, conform
from fairnotice.words import EventType
from tests.house import ROOT
from tests.testing.broken_clients import BROKEN

# Fast, so that these tests are. It waits twice as long for an answer as a late one takes, and half
# as long as it may: on a busy machine the three must not be mistaken for each other.
PACE = ("--interval", "0.15", "--timeout", "2")
CORRECT = Declared(
    (sys.executable, str(ROOT / "examples" / "client.py"), *PACE),
    poll_seconds=0.15,
    stall_seconds=4.0,
)
# Nearly all of them only wait.
AT_ONCE, SIDE_BY_SIDE = 16, 20

# Which situations each is led through, and of those it does not survive a word of the reason.
OWN_REASONS = {
    "DiesOnEmptyBody": ("quiet", {"empty-body": "ended (exit code 1) after answers had been 200"}),
    "AcknowledgesForOthers": ("reboot", {"of-another": "of web-1, which does not name it"}),
    "TakesPartsOfNames": ("of-another", {"similar-names": "of web-01, which does not name it"}),
    "Hammers": ("", {"calm": "more than 5 requests a second"}),
    "SendsNoHeader": ("", {"quiet": "without the header Metadata: true"}),
    "GivesUpOn410": ("error", {"gone": "s after every answer had been 410. Ask again"}),
    "StopsAtStarted": (
        "canceled",
        {"life": 'after its event had become Started, with NotBefore ""'},
    ),
    "KnowsOnlyTheFirst": ("reboot", {"next-event": "after a second event was announced"}),
    "DiesOnNoNotBefore": ("reboot", {"notice-over": "had become Started at its NotBefore"}),
    "ComparesIncarnations": (
        "next-event",
        {"incarnation-reset": "begun again at 1, though it asked"},
    ),
    "ReadsStrictly": (
        "next-event",
        {"control-characters": "ended (exit code 1) after a Description"},
    ),
    "WaitsForEver": ("slow", {"stalled": "longer than 4 s for an answer that did not come"}),
    "AcknowledgesNothing": ("quiet", {"reboot": "did not acknowledge the Reboot of web-0"}),
    "AcknowledgesStarted": ("reboot", {"node-failure": "which had started already"}),
    "AcknowledgesAgain": ("reboot", {"life": "the Reboot, which had started already"}),
    "AcknowledgesWhatIsGone": (
        "reboot",
        {"canceled": "still acknowledged the Freeze, which was gone"},
    ),
    "AcknowledgesWhatIsNot": ("quiet", {"reboot": "acknowledged with what was refused"}),
    "BelievesInItsAcknowledgement": ("reboot", {"no-approvals": "was answered 503"}),
    "IgnoresRetryAfter": ("error", {"too-many": "s after a 429 with Retry-After: 1"}),
    "DiesWithoutEndpoint": ("error", {"refused-at-start": "refused since it was started"}),
    "DiesOnErrors": (
        "reboot",
        {"missed-notice": "ended (exit code 1) after every answer had been 500"},
    ),
    "TakesItsHostName": ("quiet", {"preempt": "did not read its name, spot_0, from /metadata"}),
    "AsksAnOldVersion": ("reboot", {"preempt": "2017-08-01, which does not show a Preempt. Ackn"}),
    "KeepsOneConnection": ("next-event", {"connection-closed": "closed between two polls"}),
    "LooksAtTheFirstOnly": (
        "next-event",
        {"two-at-once": "after two events for it were announced"},
    ),
    "ApprovesFreezesOfOthers": ("in-a-scale-set", {"of-another": "the Freeze of web-1, which"}),
    "ApprovesTheEndOfOthers": (
        "of-another",
        {
            "preempt-of-another": "the Preempt of spot_1, which does not name it",
            "in-a-scale-set": "the Terminate of batch_1, which does not name it",
        },
    ),
    "LooksAtTheFirstName": (
        "shared",
        {"shared-not-first": "after an event was announced that names web-0 and"},
    ),
    "LooksAtTheLastName": (
        "reboot",
        {"shared": "the Freeze of web-0 within", "shared-not-first": "the Freeze of web-02 within"},
    ),
    "GetsAroundToOthers": (
        "reboot",
        {
            "of-another": "of web-1, which does not",
            "preempt-of-another": "of spot_1, which does not",
        },
    ),
    "AcknowledgesEachTypeOnce": (
        "next-event two-at-once",
        {"two-of-a-type": "after a second Reboot was announced while the first was Scheduled"},
    ),
    "HammersAfterErrors": ("reboot", {"error": "requests a second. Pause between requests, also"}),
    "AsksOnlyForTheLatest": ("", {"quiet": "asked with what was refused: 400 "}),
    "AsksForTheLatestEachTime": (
        "",
        {
            "reboot": "asked with what was refused: 400 ",
            "quiet": ". Ask with an api-version that is served",
        },
    ),
}


def broken(name):
    """A client that is broken in this way."""
    path = str(ROOT / "tests" / "testing" / "broken_clients.py")
    command = (sys.executable, path, name, *PACE)
    # What it does not do need not be waited for as long as what it does late.
    return CORRECT._replace(command=command, patience_seconds_min=2.5)


def failures(report):
    """The situations that were not survived, and why."""
    return {one.situation: one.why for one in report.results if one.verdict is Verdict.FAILED}


def test_a_client_that_is_right_survives_everything():
    """examples/client.py, which people copy."""
    report = conform(CORRECT, jobs=SIDE_BY_SIDE)

    assert failures(report) == {}
    assert [one.situation for one in report.results] == list(SITUATIONS)
    assert report.count(Verdict.SURVIVED) == len(SITUATIONS) >= 40
    guide = (ROOT / "docs" / "guides" / "conformance.md").read_text("utf-8")
    assert f"There are {len(SITUATIONS)}\n[situations]" in guide


def test_every_broken_client_fails_for_its_own_reason():
    """Each is led through what it survives, too, so that it is not failed for another."""
    assert len(OWN_REASONS) >= 12
    assert {*OWN_REASONS, "EndsAfterTwoPolls"} == set(BROKEN)

    def played(name):
        survived, failed = OWN_REASONS[name]
        return failures(conform(broken(name), [*survived.split(), *failed], jobs=2))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(OWN_REASONS, pool.map(played, OWN_REASONS), strict=True))
    wrong = {
        name: found[name]
        for name, (_, reasons) in OWN_REASONS.items()
        if found[name].keys() != reasons.keys()
        or not all(word in found[name][situation] for situation, word in reasons.items())
    }
    assert wrong == {}
    assert not any(" 1 times" in why for one in found.values() for why in one.values())


def test_no_situation_is_survived_by_whoever_does_nothing():
    """A client that ends after its second poll fails each of them."""
    report = conform(broken("EndsAfterTwoPolls"), jobs=SIDE_BY_SIDE)

    assert failures(report).keys() == SITUATIONS.keys()
    assert all("Its process ended (exit code 0)" in why for why in failures(report).values())


# ---- What is declared ----


def test_whoever_only_watches_is_not_asked_to_acknowledge():
    """And may not do it."""
    chosen = ["reboot", "canceled"]
    watching = broken("AcknowledgesNothing")._replace(acknowledges=False)

    survived = conform(watching, chosen)
    failed = conform(CORRECT._replace(acknowledges=False), chosen)

    assert [one.verdict for one in survived.results] == [Verdict.NOT_ASKED, Verdict.SURVIVED]
    assert "said only to watch" in failures(failed)["canceled"]


def test_a_type_that_is_not_declared_is_not_acknowledged():
    """A Freeze by whoever handles nothing but Reboot."""
    report = conform(CORRECT._replace(types=frozenset({EventType.REBOOT})), ["freeze", "reboot"])

    assert failures(report).keys() == {"freeze"}
    assert "a type that it was said not to acknowledge" in failures(report)["freeze"]


def test_whoever_acknowledges_only_the_end_of_a_vm_is_asked_for_no_more():
    """A Preempt or a Terminate comes once; what comes again it leaves alone."""
    only = broken("AcknowledgesNothing")._replace(types=frozenset({EventType.PREEMPT}))
    report = conform(only, ["preempt", "reboot", "life", "canceled"])

    found = {one.situation: one.verdict for one in report.results}
    assert found["life"] is Verdict.NOT_ASKED
    assert (found["reboot"], found["canceled"]) == (Verdict.SURVIVED, Verdict.SURVIVED)
    assert "did not acknowledge the Preempt of spot_0" in failures(report)["preempt"]


def test_whoever_lets_the_first_lead_leaves_it_to_the_first():
    """As Azure suggests for what names several; its own it acknowledges, as the first too."""
    chosen = ["shared", "shared-not-first"]
    follows = conform(broken("LooksAtTheFirstName")._replace(first_leads=True), chosen)
    goes_ahead = conform(CORRECT._replace(first_leads=True), chosen)

    assert follows.survived, failures(follows)
    assert failures(goes_ahead).keys() == {"shared-not-first"}
    assert "said to leave to the first of them" in failures(goes_ahead)["shared-not-first"]


def test_how_often_it_asks_is_measured():
    """Where nobody has said it."""
    report = conform(CORRECT._replace(poll_seconds=None), ["quiet"])
    hammered = conform(broken("Hammers")._replace(poll_seconds=None), ["calm"])

    assert 0.1 < report.declared.interval_seconds < 0.5
    assert report.survived
    assert "more than 5 requests a second" in failures(hammered)["calm"]


ONCE = """
import sys
sys.argv[1:1] = []
sys.path.insert(0, "examples")
import client
one = client.Client(sys.argv[1], 1, 5)
one.poll()
"""


def test_a_client_that_asks_once_is_run_again_and_again():
    """As cron does; that it ends is no fault."""
    once = (sys.executable, "-c", ONCE, "{url}")
    report = conform(CORRECT._replace(command=once, once=True), ["reboot", "error"])

    assert report.survived, failures(report)


LEARNING = """
import json, sys, urllib.error
sys.path.insert(0, "examples")
import client

class Learning(client.Client):
    def poll(self):
        if not hasattr(self, "events"):
            try:
                self.ask(client.EVENTS.replace("2020-07-01", "latest"))
            except urllib.error.HTTPError as refused:
                newest = json.load(refused)["newest-versions"][0]
                client.EVENTS = client.EVENTS.replace("2020-07-01", newest)
                self.events = True
        super().poll()

one = Learning(sys.argv[1], 0.15, 2)
one.poll() if "once" in sys.argv else one.run()
"""


@pytest.mark.parametrize("once", [False, True])
def test_versions_may_be_learned_from_a_first_400(once):
    """As WIRE.md has it; one that is run anew each time learns them each time."""
    words = ("once",) if once else ()
    learning = (sys.executable, "-c", LEARNING, "{url}", *words)
    report = conform(CORRECT._replace(command=learning, once=once), ["quiet", "reboot"])

    assert report.survived, failures(report)


# ---- What cannot be played ----


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("no-such-client",), "There is no command no-such-client"),
        ((sys.executable, "-c", "exit('I need a token')"), "ended with exit code 1"),
        ((), "Say which client"),
    ],
)
def test_a_client_that_never_asks_is_said_once(command, told):
    """And with what it said."""
    with pytest.raises(UsageError, match=told) as refused:
        conform(command)
    assert ("I need a token" in str(refused.value)) == ("exit code" in told)
    assert ("asked the real 169.254.169.254" in str(refused.value)) == ("exit code" in told)


def test_a_situation_that_is_mistyped_is_said():
    """With the nearest."""
    with pytest.raises(UnknownName, match="Did you mean reboot"):
        conform(CORRECT, ["rebot"])
