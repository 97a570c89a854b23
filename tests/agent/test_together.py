"""Several VMs in one event: who gives the go-ahead, and that it is never given too early."""

from contextlib import ExitStack
from threading import Event as Signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.agent import rendezvous, status
from fairnotice.agent.journal import Journal
from fairnotice.agent.leader import Say, verdict, verdict_at_rendezvous
from fairnotice.agent.meeting import Meeting
from fairnotice.agent.plan import Limits
from fairnotice.agent.records import Record
from fairnotice.agent.rules import Leader
from fairnotice.agent.workshop import Workshop
from fairnotice.errors import RendezvousFailed, UsageError
from fairnotice.testing import Cloud
from fairnotice.testing.manual_clock import ManualClock
from tests.agent.agents import Home, process, thread, watching
from tests.agent.events import NOW, course, event

THREE = ("a", "b", "c")
FLEET = """
[[node]]
name = "n"
capacity = 8
[[availability_set]]
name = "set"
""" + "".join(
    f'[[vm]]\nname = "{vm}"\nnode = "n"\navailability_set = "set"\nupdate_domain = 0\n'
    for vm in THREE
)
RULE = 'prepare = ["one"]\nleader = "{leader}"\nduration_at_least = 0'
HANGS = "; test $FAIRNOTICE_PHASE = recover || sleep 60"


@pytest.fixture
def cloud():
    """Three VMs that one event names."""
    with Cloud(FLEET) as made:
        yield made


def homes(tmp_path, leader, slow=None, more=""):
    """The disks of the three, with a place where they meet."""
    (tmp_path / "shared").mkdir()
    shared = f'[rendezvous]\ndirectory = "{tmp_path / "shared"}"\ntakeover_seconds = 0.5\n'
    return {
        vm: Home(
            tmp_path / vm,
            rule=RULE.format(leader=leader),
            more=more or shared,
            slow=(slow or {}).get(vm, ""),
        )
        for vm in THREE
    }


def maintained(cloud):
    """The event that names all three."""
    [one] = cloud.node("n").maintain()
    assert one.resources == list(THREE)
    return one


def test_the_first_of_resources_leads(tmp_path, cloud):
    """All prepare, one acknowledges; the others leave it to that one."""
    disks = homes(tmp_path, "first", slow={"a": "; sleep 0.3"})
    with ExitStack() as stack:
        for vm, home in disks.items():
            stack.enter_context(thread(home, cloud.url_for(vm)))
            watching(home, cloud)
        one = maintained(cloud)
        cloud.wait_until(lambda: cloud.approvals)
        assert one.approved_by == "a"
        cloud.run_until(one, "Completed")
        cloud.wait_until(lambda: all(home.over for home in disks.values()))
    assert [home.wrote for home in disks.values()] == [["prepare one", "recover one"]] * 3
    assert [approval.by for approval in cloud.approvals] == ["a"]


def test_at_a_rendezvous_a_dead_leader_is_replaced(tmp_path, cloud):
    """The first dies once it has said that it is ready; the next one acknowledges for all."""
    disks = homes(tmp_path, "rendezvous", slow={"b": "; sleep 0.5"})
    with ExitStack() as stack:
        leader = stack.enter_context(process(disks["a"], cloud, "a"))
        for vm in ("b", "c"):
            stack.enter_context(thread(disks[vm], cloud.url_for(vm)))
        for home in disks.values():
            watching(home, cloud)
        one = maintained(cloud)
        place = rendezvous.SharedDirectory(tmp_path / "shared")
        shown = event(one.id)
        cloud.wait_until(lambda: "a" in place.who(shown))
        leader.kill()
        cloud.wait_until(lambda: cloud.approvals)
        assert one.approved_by in ("b", "c")
        assert "prepare one" in disks["b"].wrote
        cloud.run_until(one, "Completed")
        cloud.wait_until(lambda: disks["b"].over and disks["c"].over)
        cloud.wait_until(lambda: place.who(shown) == {"a"})
    with thread(disks["a"], cloud.url_for("a")):
        cloud.wait_until(lambda: disks["a"].over)
        cloud.wait_until(lambda: not place.who(shown))


def test_nobody_acknowledges_for_one_that_is_not_ready(tmp_path, cloud):
    """One never gets ready: NotBefore comes, the event starts, and all recover."""
    disks = homes(tmp_path, "rendezvous", slow={"c": HANGS})
    with ExitStack() as stack:
        for vm, home in disks.items():
            stack.enter_context(thread(home, cloud.url_for(vm)))
            watching(home, cloud)
        one = maintained(cloud)
        place = rendezvous.SharedDirectory(tmp_path / "shared")
        cloud.wait_until(lambda: place.who(event(one.id)) == {"a", "b"})
        cloud.wait_until(
            lambda: status.read(disks["a"].state)["events"][one.id]["waits"] == "not ready: c"
        )
        asked = len(cloud.requests)
        cloud.advance_to(one.not_before)
        assert one.status == "Started"
        assert not cloud.approvals
        cloud.wait_until(lambda: len(cloud.requests) >= asked + 3)
        cloud.run_until(one, "Completed")
        cloud.wait_until(lambda: all(home.over for home in disks.values()))
    assert not cloud.approvals


def test_one_that_recovers_is_not_ready(tmp_path, cloud):
    """The event is gone for one of them: nobody acknowledges for it, though it was ready once."""
    go_on = tmp_path / "go-on"
    waits = f"; test $FAIRNOTICE_PHASE = {{}} || until test -e {go_on}; do sleep 0.05; done"
    slow = {"a": waits.format("prepare") + " #", "c": waits.format("recover")}
    disks = homes(tmp_path, "rendezvous", slow=slow)
    with ExitStack() as stack:
        for vm, home in disks.items():
            stack.enter_context(thread(home, cloud.url_for(vm)))
            watching(home, cloud)
        one = maintained(cloud)
        place = rendezvous.SharedDirectory(tmp_path / "shared")
        cloud.wait_until(lambda: place.who(event(one.id)) == {"a", "b"})
        cloud.fault("canceled-late", vm="a", seconds=3000)
        cloud.wait_until(lambda: "recover one" in disks["a"].wrote)
        assert place.who(event(one.id)) == {"b"}
        go_on.touch()
        cloud.wait_until(lambda: place.who(event(one.id)) == {"b", "c"})
        asked = len(cloud.requests)
        cloud.wait_until(lambda: len(cloud.requests) >= asked + 3)
    assert not cloud.approvals


class Hangs:
    """A place where asking who is ready takes until somebody lets it."""

    def __init__(self):
        self.may_answer = Signal()
        self.asked = Signal()
        self.did = []

    def ready(self, event, vm):  # noqa: ARG002
        self.did.append("ready")

    def who(self, event):
        self.asked.set()
        self.may_answer.wait(30)
        return frozenset(event.resources)

    def leave(self, event, vm):  # noqa: ARG002
        self.did.append("leave")
        if self.did.count("leave") == 1:
            raise RendezvousFailed("Not now.")


def test_a_place_that_hangs_holds_up_no_recovery(tmp_path, cloud):
    """What is prepared is recovered; that it is not ready is said once that can be said."""
    home = homes(tmp_path, "rendezvous")["a"]
    with thread(home, cloud.url_for("a")) as agent:
        agent.shop.rendezvous = place = Hangs()
        watching(home, cloud)
        one = maintained(cloud)
        cloud.wait_until(place.asked.is_set)
        one.cancel()
        cloud.wait_until(lambda: home.wrote == ["prepare one", "recover one"])
        cloud.wait_until(lambda: home.journal[-1] == "ended")
        assert place.did == ["ready"]
        assert not home.over
        place.may_answer.set()
        cloud.wait_until(lambda: home.over)
    assert place.did == ["ready", "leave", "leave"]
    assert not cloud.approvals


# ---- Who leads ----


@pytest.mark.parametrize(
    ("leader", "vm", "say"),
    [
        (Leader.FIRST, "a", Say.GIVE),
        (Leader.FIRST, "A", Say.GIVE),
        (Leader.FIRST, "b", Say.LEAVE),
        (Leader.NONE, "b", Say.GIVE),
    ],
)
def test_who_leads_by_the_document_alone(leader, vm, say):
    """The first of Resources, or each for itself."""
    assert verdict(leader, event(resources=THREE), vm).say is say


@given(st.sets(st.sampled_from(THREE)), st.sampled_from(THREE), st.floats(0, 60))
def test_at_a_rendezvous_all_must_be_ready(ready, vm, seconds):
    """However long it takes; and when all are, each further one waits a little longer."""
    came = verdict_at_rendezvous(event(resources=THREE), vm, frozenset(ready), seconds, 5.0)
    mine = THREE.index(vm) * 5.0
    assert (came.say is Say.GIVE) == (ready == set(THREE) and seconds >= mine)


@pytest.mark.parametrize(
    ("vm", "seconds", "say"),
    [
        ("a", 0.0, Say.GIVE),
        ("b", 4.9, Say.WAIT),
        ("b", 5.0, Say.GIVE),
        ("c", 5.0, Say.WAIT),
        ("c", 9.9, Say.WAIT),
        ("C", 10.0, Say.GIVE),
        # One that is not named comes behind all others.
        ("d", 14.9, Say.WAIT),
        ("d", 15.0, Say.GIVE),
    ],
)
def test_each_further_one_waits_longer_for_those_before_it(vm, seconds, say):
    """So that two of them seldom acknowledge at once."""
    all_ready = frozenset(THREE)
    assert verdict_at_rendezvous(event(resources=THREE), vm, all_ready, seconds, 5.0).say is say


class Board:
    """A place whose answers the test writes."""

    def __init__(self):
        self.names = set()
        self.said = 0

    def ready(self, event, vm):  # noqa: ARG002
        self.said += 1
        self.names.add(vm)

    def who(self, event):  # noqa: ARG002
        return frozenset(self.names)


def test_what_is_swept_away_is_said_again_and_counted_anew(tmp_path):
    """Ready once is said once; and those before this VM have their whole time after any gap."""
    clock = ManualClock(NOW)
    shop = Workshop(Journal(tmp_path, clock), [], {}, Limits(5, {}), clock=clock)
    shop.rendezvous, shop.takeover_seconds = board, _ = Board(), 5.0
    met = Meeting(shop)
    one = event(resources=THREE)
    b = Record(one, "b", course("one", leader=Leader.RENDEZVOUS))
    assert met.verdict(b, one).why == "not ready: a, c"
    board.names |= {"a", "c"}
    assert met.verdict(b, one).seconds == 5.0
    clock.advance(seconds=4)
    assert met.verdict(b, one).seconds == 1.0
    assert board.said == 1
    board.names.clear()
    assert met.verdict(b, one).why == "not ready: a, b, c"
    board.names |= {"a", "c"}
    clock.advance(seconds=4)
    assert met.verdict(b, one).seconds == 5.0
    assert board.said == 2
    clock.advance(seconds=5)
    assert met.verdict(b, one).say is Say.GIVE
    shop.journal.close()


# ---- Where they meet ----


def test_a_shared_directory_keeps_events_apart(tmp_path):
    """Names from the network name no other folder, and case makes no difference."""
    (tmp_path / "shared").mkdir()
    place = rendezvous.SharedDirectory(tmp_path / "shared")
    evil, other = event("../../E"), event("E2")
    place.ready(evil, "Web-0")
    place.ready(evil, "Web-0")
    assert place.who(evil) == {"web-0"}
    assert place.who(other) == frozenset()
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]
    place.leave(evil, "web-0")
    place.leave(evil, "web-0")
    assert place.who(evil) == frozenset()
    (tmp_path / "file").write_text("")
    for missing in ("file", "not mounted"):
        with pytest.raises(RendezvousFailed, match="is no folder here: is what the VMs share"):
            rendezvous.SharedDirectory(tmp_path / missing).ready(evil, "web-0")
    assert not (tmp_path / "not mounted").exists()
    with pytest.raises(RendezvousFailed, match="cannot be taken away"):
        rendezvous.SharedDirectory(tmp_path / "file").leave(evil, "web-0")


def test_a_command_is_a_place_to_meet(tmp_path):
    """It is told by one more word what is wanted, and by variables of whom."""
    told = (
        f'case "$1" in ready) echo "$FAIRNOTICE_VM" >> {tmp_path}/$FAIRNOTICE_EVENT_ID;; '
        f"who) cat {tmp_path}/$FAIRNOTICE_EVENT_ID;; leave) exit 3;; esac"
    )
    place = rendezvous.make({"command": ["sh", "-c", told, "sh"]})
    place.ready(event(), "web-0")
    place.ready(event(), "web-1")
    assert place.who(event()) == {"web-0", "web-1"}
    with pytest.raises(RendezvousFailed, match="sh leave"):
        place.leave(event(), "web-0")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "give either directory or command"),
        ({"directory": "/a", "command": ["b"]}, "give either"),
        ({"directry": "/a"}, "Did you mean directory"),
        ({"kind": "postal"}, "there is no kind 'postal'"),
    ],
)
def test_a_place_that_cannot_be_is_refused(settings, said):
    """In words."""
    with pytest.raises(UsageError, match=said):
        rendezvous.make(settings)


def test_another_package_may_offer_a_place(tmp_path, monkeypatch):
    """By its entry point; it is given the keys that are its own."""
    (tmp_path / "meeting.py").write_text(
        "class Board:\n"
        "    def __init__(self, settings):\n"
        "        self.room = settings['room']\n"
        "        self.settings = settings\n"
    )
    folder = tmp_path / "meeting-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: meeting\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[fairnotice.rendezvous]\nboard = meeting:Board\n")
    monkeypatch.syspath_prepend(tmp_path)
    made = rendezvous.make({"kind": "board", "room": "a", "takeover_seconds": 2})
    assert made.settings == {"room": "a"}
    with pytest.raises(UsageError, match="the kind board cannot be made: 'room'"):
        rendezvous.make({"kind": "board"})
    with pytest.raises(UsageError, match="Did you mean board"):
        rendezvous.make({"kind": "bord"})
