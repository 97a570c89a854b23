"""What became of a performMaintenance: of the events that it approved, and of nobody else's."""

from datetime import timedelta

import pytest

from fairnotice.control.fleet_files import sample_fleet, specification
from fairnotice.stores.memory import MemoryStore
from fairnotice.testing.manual_clock import ManualClock
from tests.arm.calling import BATCH, DB, asked
from tests.control.bearers import kept
from tests.waiting import until

ADMIN, MINE = "admin", "mine"


class Two:
    """A control plane that wants tokens; who may do all, and who may see `db` alone."""

    def __init__(self, arm, texts, clock):
        self.arm, self.texts, self.clock = arm, texts, clock
        self.began = None

    def native(self, path, body=None):
        """The admin asks the native API for something, which is taken."""
        authorization = f"Bearer {self.texts[ADMIN]}"
        answer = self.arm.served.post(path, body, Authorization=authorization)
        assert answer.status in (200, 201, 202), answer
        return answer

    def announced(self):
        """The event of `db`."""
        return next(one for one in self.arm.fleet.events.values() if one.scope == "vm:db")

    def perform(self):
        """Whoever may see `db` alone approves what is announced for it."""
        authorization = f"Bearer {self.texts[MINE]}"
        self.began = self.arm.post(f"{DB}/performMaintenance", Authorization=authorization)
        assert self.began.status == 202, self.began

    def told(self, who=MINE):
        """What is answered to this one who asks how far it has come."""
        url = self.began.headers["azure-asyncoperation"].partition(str(self.arm.served.run.arm))[2]
        return self.arm.get(url, query="", Authorization=f"Bearer {self.texts[who]}")

    def ended(self):
        """What is said when it is over, to both alike."""
        found = until(lambda: self.told() if self.told().json["status"] != "InProgress" else None)
        assert self.told(ADMIN).json == found.json
        return found.json

    def let_pass(self, hours):
        """Time passes, and something is decided at its end: what is over for long is forgotten."""
        for _ in range(hours):
            self.clock.advance(hours=1)
            self.arm.served.look("db")
        self.native("/v1/nodes/node-5/cordon")


@pytest.fixture
def two():
    """Both of them, for one test."""
    store, clock = MemoryStore(), ManualClock()
    # Before there is a service: it would wait for its clock until it looks for new ones.
    texts = {
        ADMIN: kept(store, ADMIN, ADMIN, now=clock.wall()),
        MINE: kept(store, MINE, scopes=("vm:db",), now=clock.wall()),
    }
    with asked(store, auth=True, clock=clock) as arm:
        yield Two(arm, texts, clock)


def approve_all(two):
    """The admin approves whatever waits."""
    for event in list(two.arm.fleet.events.values()):
        if event.approval is None:
            two.native(f"/v1/events/{event.id}/approve")


def test_nobody_is_told_of_the_failure_of_somebody_elses_vm(two):
    """The node's operation has failed, for batch_1 there; what was approved was done."""
    reason = "batch_1: /srv/tenant-b/disk.qcow2 is gone"
    two.arm.served.run.conductor._driver.next_fails("batch_1", reason=reason)
    two.native("/v1/nodes/node-1/maintain", {"impact": "reboot"})
    operation = two.arm.fleet.operations[two.announced().operation]
    assert {"db", "batch_1"} <= set(operation.vms)
    two.perform()
    assert two.told().json["status"] == "InProgress"
    approve_all(two)
    ended = two.ended()
    assert ended["status"] == "Succeeded"
    assert "error" not in ended


def test_why_ones_own_has_failed_is_told(two):
    """The driver's reason for db, though another of its node failed before it."""
    for vm in ("batch_1", "db"):
        two.arm.served.run.conductor._driver.next_fails(vm, reason=f"no disk for {vm}")
    two.native("/v1/nodes/node-1/maintain", {"impact": "reboot"})
    two.perform()
    approve_all(two)
    ended = two.ended()
    assert ended["status"] == "Failed"
    assert "no disk for db" in ended["error"]["message"]
    assert "batch_1" not in ended["error"]["message"]


def test_an_event_that_its_vm_has_left_is_canceled_for_who_approved_it(two):
    """Rule 12: its operation waits on for the others of the node; it is told alike a day later."""
    two.arm.served.look("web-1")
    two.native("/v1/nodes/node-1/maintain", {"impact": "reboot"})
    event = two.announced()
    two.perform()
    two.native("/v1/vms/db/deallocate")
    ended = two.ended()
    assert ended["status"] == "Canceled"
    assert "db was deallocated" in ended["error"]["message"]
    assert two.arm.fleet.operations[event.operation].pending
    approve_all(two)
    until(lambda: two.arm.fleet.operations[event.operation].ended_at, "the end of the others")
    two.let_pass(50)
    until(lambda: event.id not in two.arm.fleet.events, "its forgetting")
    assert two.told(ADMIN).json == ended


def test_an_event_of_two_vms_is_over_when_it_is_for_both(arm):
    """Two instances on one node, of one update domain: the first has ended, the second hangs."""
    fleet = specification(sample_fleet())
    both = ("batch_0", "batch_1")
    vms = [
        one._replace(node="node-0", update_domain=0) if one.name in both else one
        for one in fleet.vms
    ]
    arm.served.inside(arm.served.run.service.apply_fleet(fleet._replace(vms=tuple(vms))))
    driver = arm.served.run.conductor._driver
    driver.next_hangs("batch_1")
    arm.served.post("/v1/nodes/node-0/maintain", {"impact": "reboot"})
    began = arm.post(f"{BATCH}/performMaintenance")
    (event,) = [one for one in arm.fleet.events.values() if one.scope.startswith("scale-set:batch")]
    assert set(event.resources) == set(both)
    arm.approve("web-0")

    def ended(vm):
        return any(one.ended_at for one in arm.fleet.impacts.values() if one.vm == vm)

    until(lambda: ended("batch_0"), "the end of the first")
    assert arm.follow(began)["status"] == "InProgress"
    arm.served.loop.call_soon_threadsafe(driver.let_go, "batch_1")
    arm.until(began, "Succeeded")


def test_who_approved_may_follow_it_for_as_long_as_it_waits(two):
    """For days: that this token has approved it is what says that it may look."""
    not_before = two.clock.wall() + timedelta(hours=60)
    body = {"impact": "reboot", "not_before": not_before.isoformat()}
    two.native("/v1/nodes/node-1/maintain", body)
    two.perform()
    two.let_pass(50)
    told = two.told()
    assert (told.status, told.json["status"]) == (200, "InProgress")
