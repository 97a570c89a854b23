"""Who asks: by address, by unix socket, by /vm/NAME; nobody sees another scope's document."""

import json
from collections import deque
from difflib import get_close_matches

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairnotice.engine.commands import ApplyFleet
from fairnotice.metadata import identity
from fairnotice.metadata.identity import Door
from tests.engine.story import BATCH, DB, SHOP, SPOT, WEB
from tests.metadata.wireless import (
    ADDRESSES,
    DB_0,
    NEWEST,
    PATH,
    STRANGER,
    TARGET,
    VERSIONS,
    WEB_0,
    WEB_1,
    Wireless,
    approval,
    get,
    request,
    served_sample,
)

LAPTOP = Door(prefix_allowed=True)


def shown(answer):
    """The resources that a document names."""
    return [name for event in answer.events for name in event["Resources"]]


def everybody_has_an_event(world):
    """One event in each of the five scopes."""
    world.stage.restart_vm("web-0")
    world.stage.restart_vm("batch_0")
    world.stage.restart_vm("db")
    world.stage.restart_vm("spot_1")
    world.stage.restart_vm("FrontEnd_IN_0")


# ---- By address ----


def test_each_address_sees_its_own_scope(wireless):
    """All VMs, all addresses."""
    world = wireless()
    everybody_has_an_event(world)
    restarted = {WEB: "web-0", BATCH: "batch_0", DB: "db", SPOT: "spot_1", SHOP: "FrontEnd_IN_0"}
    for vm, addresses in ADDRESSES.items():
        for address in addresses:
            assert shown(world.ask(get(), address)) == [restarted[world.stage.vm(vm).scope]]


@pytest.mark.parametrize("address", [STRANGER, "10.0.0.11", "2001:db8::7", "::1"])
def test_a_stranger_is_told_which_address_asked(wireless, address):
    """403 with the address, and no word of /vm/NAME where it is not believed."""
    vm = wireless().connect(address)
    for raw in (get(), request("GET", "/metadata/versions"), approval("x")):
        answer = vm.ask(raw)
        assert answer.status == 403
        assert address in answer.error
        assert "/vm/" not in answer.error


def test_a_stranger_who_becomes_known_is_served(wireless):
    """On the connection he has."""
    world = wireless()
    vm = world.connect(STRANGER)
    assert vm.ask(get()).status == 403
    world.run(lambda: world.stage.tell(ApplyFleet(spec=fleet_with(db=("10.0.4.1", STRANGER)))))

    assert vm.ask(get()).status == 200


def fleet_with(**addresses):
    """The sample fleet with other addresses for some; none at all removes the VM."""
    spec = served_sample()
    vms = (
        vm._replace(addresses=addresses.get(vm.name, vm.addresses))
        for vm in spec.vms
        if addresses.get(vm.name, vm.addresses)
    )
    return spec._replace(vms=tuple(vms))


def test_a_vm_that_is_removed_is_a_stranger(wireless):
    """Also on the connection it still has."""
    world = wireless()
    vm = world.connect(DB_0)
    assert vm.ask(get()).status == 200
    world.run(lambda: world.stage.tell(ApplyFleet(spec=fleet_with(db=()))))

    assert [vm.ask(get()).status, world.ask(get(), DB_0).status] == [403, 403]


@pytest.mark.parametrize("line", [(), ("X-Poll: 1",)], ids=["seen before", "never seen"])
def test_an_address_that_is_another_vms_now_shows_that_vms_document(wireless, line):
    """Connections that are still open follow the address, on the fast way and on the long way."""
    world = wireless()
    world.stage.restart_vm("web-1")
    world.stage.restart_vm("batch_1")
    vm = world.connect(WEB_0)
    assert shown(vm.ask(get())) == ["web-1"]
    spec = fleet_with(**{"web-0": ("10.0.0.9",), "batch_0": (WEB_0,)})
    world.run(lambda: world.stage.tell(ApplyFleet(spec=spec)))

    assert shown(vm.ask(get(*line))) == ["batch_1"]
    assert shown(world.ask(get(), "10.0.0.9")) == ["web-1"]


def test_a_vm_that_changes_its_scope_sees_the_new_one(wireless):
    """On the connection it has, from the next request on."""
    world = wireless()
    world.stage.restart_vm("web-0")
    vm = world.connect(DB_0)
    assert shown(vm.ask(get())) == []
    spec = served_sample()
    moved = tuple(v._replace(availability_set="web") if v.name == "db" else v for v in spec.vms)
    world.run(lambda: world.stage.tell(ApplyFleet(spec=spec._replace(vms=moved))))

    assert shown(vm.ask(get())) == ["web-0"]


# ---- By listener ----


def test_two_networks_may_use_the_same_address(wireless):
    """(listener, address) says who it is, not the address alone."""
    world = wireless()
    everybody_has_an_event(world)
    board = world.worker.board
    board.put_caller("web-0", WEB, ["192.168.0.4"], listener="red")
    board.put_caller("db", DB, ["192.168.0.4"], listener="blue")

    assert shown(world.ask(get(), "192.168.0.4", Door("red"))) == ["web-0"]
    assert shown(world.ask(get(), "192.168.0.4", Door("blue"))) == ["db"]
    assert world.ask(get(), "192.168.0.4").status == 403


def test_on_a_network_of_its_own_nobody_is_known_by_an_address_elsewhere(wireless):
    """A listener without VMs knows nobody: 10.0.0.1 there is not 10.0.0.1 here."""
    world = wireless()

    assert world.ask(get(), WEB_0, Door("green")).status == 403


# ---- By unix socket ----


def test_a_unix_socket_belongs_to_one_vm(wireless):
    """Whoever connects is that VM, whatever he claims."""
    world = wireless()
    everybody_has_an_event(world)
    vm = world.connect("", Door(vm="db"))

    assert shown(vm.ask(get())) == ["db"]
    assert vm.ask(request("GET", f"/vm/web-0{TARGET}")).status == 404


def test_the_unix_socket_of_a_vm_that_is_gone(wireless):
    """403, as for any stranger; it has no address, so it is told the name."""
    answer = wireless().ask(get(), "", Door(vm="nobody"))

    assert answer.status == 403
    assert "the VM nobody" in answer.error
    assert "known at" not in answer.error


@pytest.mark.parametrize("address", ["::ffff:10.0.0.1", "10.0.0.1"])
def test_an_ipv4_address_is_itself_also_on_a_socket_of_both_kinds(wireless, address):
    """Where one listens on `::`, the kernel writes IPv4 addresses as ::ffff:a.b.c.d."""
    assert wireless().ask(get(), address).status == 200
    assert identity.address_of((address, 1, 0, 0)) == "10.0.0.1"
    assert identity.address_of(("::ffff:a00:1", 1)) == "::ffff:a00:1"
    assert identity.address_of("") == identity.address_of(None) == ""


# ---- By name ----


@pytest.mark.parametrize("address", [STRANGER, WEB_0])
def test_the_prefix_is_believed_where_it_is_allowed(wireless, address):
    """From anywhere, also from another VM's address; for all paths and for approvals."""
    world = wireless()
    everybody_has_an_event(world)
    event = world.stage.only(DB).id

    def ask(method, rest, **more):
        return world.ask(request(method, f"/vm/db{rest}", **more), address, LAPTOP)

    assert shown(ask("GET", TARGET)) == ["db"]
    assert shown(ask("GET", f"{PATH}/?api-version=2017-03-01")) == ["_db"]
    name = ask("GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text")
    assert name.body == b"db"
    body = json.dumps({"StartRequests": [{"EventId": event}]}).encode()
    raw = request("POST", f"/vm/db{TARGET}", f"Content-Length: {len(body)}", body=body)
    assert world.ask(raw, address, LAPTOP).status == 200
    assert world.stage.event(event).approval.by == "db"


def test_an_unknown_name_is_told_the_nearest(wireless):
    """404 with names that may have been meant."""
    answer = wireless().ask(request("GET", f"/vm/web-9{TARGET}"), STRANGER, LAPTOP)

    assert answer.status == 404
    assert "web-9" in answer.error
    assert "web-0" in answer.error


@pytest.mark.parametrize(
    ("asked", "meant"), [("DB", "db"), ("frontend_in_0", "FrontEnd_IN_0"), ("WEB-9", "web-")]
)
def test_an_unknown_name_in_another_case_is_told_the_right_one(wireless, asked, meant):
    """Names are exact, and what differs in its case alone is nearest."""
    answer = wireless().ask(request("GET", f"/vm/{asked}{TARGET}"), STRANGER, LAPTOP)

    assert answer.status == 404
    assert meant in answer.error.partition("nearest")[2]


def test_the_nearest_of_very_many_names_are_found_by_comparing_few(wireless, monkeypatch):
    """Comparing all of them letter by letter would stop everybody for more than a second."""
    board = wireless().worker.board
    for number in range(100_000):
        board.put_caller(f"vm-{number:06}", WEB, ())
    compared = []

    def spy(name, names, **more):
        compared.append(len(names))
        return get_close_matches(name, names, **more)

    monkeypatch.setattr(identity, "get_close_matches", spy)
    assert "vm-007123" in identity.nearest_names(board, "vm-007123x")
    assert identity.nearest_names(board, "VM-077123") == ["vm-077123"]
    assert identity.nearest_names(board, "x" * 16_000) == []
    assert max(compared) <= 500


def test_a_stranger_is_shown_the_prefix_where_it_is_allowed(wireless):
    """403 with the form of /vm/NAME."""
    answer = wireless().ask(get(), STRANGER, LAPTOP)

    assert answer.status == 403
    assert "/vm/NAME" in answer.error
    assert STRANGER in answer.error


@pytest.mark.parametrize("name", ["web-0", "db", "nobody"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_where_it_is_not_allowed_it_is_an_unknown_path(wireless, name, method):
    """404 before anything else, alike for names there are and names there are not."""
    world = wireless()
    raw = request(method, f"/vm/{name}{TARGET}", "Content-Length: 0")
    forwarded = request(method, f"/vm/{name}{TARGET}", "X-Forwarded-For: x", "Content-Length: 0")
    answer = world.ask(raw)

    assert answer.status == 404
    assert answer.body == world.ask(request("GET", "/nowhere")).body
    assert world.ask(forwarded).status == 404
    assert world.ask(raw, STRANGER).status == 404


@pytest.mark.parametrize("target", ["/vm", "/vm/", "/vm/db", "/vm//metadata/scheduledevents"])
def test_a_prefix_alone_is_an_unknown_path(wireless, target):
    """404."""
    assert (
        wireless().ask(request("GET", f"{target}?api-version=2020-07-01"), STRANGER, LAPTOP).status
        == 404
    )


def test_who_it_was_is_not_kept_from_one_request_to_the_next(wireless):
    """Names alternate on one connection, and so do the documents, first time and second."""
    world = wireless()
    everybody_has_an_event(world)
    vm = world.connect(WEB_1, LAPTOP)
    for _ in range(2):
        raw = b"".join(
            (request("GET", f"/vm/db{TARGET}"), get(), request("GET", f"/vm/spot_1{TARGET}"), get())
        )
        assert [shown(answer) for answer in vm.send(raw)] == [
            ["db"],
            ["web-0"],
            ["spot_1"],
            ["web-0"],
        ]


# ---- Whatever is done ----

VMS = sorted(ADDRESSES)
POLLS = st.tuples(
    st.just("poll"),
    st.sampled_from(VMS),
    st.sampled_from(VERSIONS),
    st.sampled_from(["address", "unix", "name"]),
    st.sampled_from(["", "old", "wait"]),
)
STEPS = st.one_of(
    POLLS,
    POLLS,
    st.tuples(st.just("restart"), st.sampled_from(VMS)),
    st.tuples(st.just("approve"), st.sampled_from(VMS)),
    st.tuples(st.just("done")),
    st.tuples(st.just("pass"), st.sampled_from([0.1, 20.0, 400.0, 100_000.0])),
    st.tuples(st.just("move"), st.sampled_from(["db", "web-1", "web-2"])),
    st.tuples(st.just("remove"), st.sampled_from(["db", "web-2", "batch_3"])),
    st.tuples(st.just("swap"), st.sampled_from(VMS), st.sampled_from(VMS)),
)


class Neighbours:
    """The fleet under random polls, events and changes; a VM keeps a connection of each kind."""

    def __init__(self, world):
        self.world = world
        self.lines = {}
        # Of each connection, what was asked and not answered: the version, None for an approval.
        self.asked = {}
        self.etags = {}
        # What an ETag stood for, in each version: it may never stand for anything else.
        self.meanings = {}
        self.spec = served_sample()
        self.removed = {}

    def line(self, vm, way):
        doors = {"address": Door(), "unix": Door(vm=vm), "name": LAPTOP}
        line = self.lines.get((vm, way))
        if line is None or line.is_closing():
            address = ADDRESSES[vm][0] if way == "address" else "127.0.0.1"
            line = self.lines[vm, way] = self.world.connect(address, doors[way])
            self.asked[line] = deque()
        return line

    def poll(self, vm, version, way, condition):
        lines = [f"If-None-Match: {self.etags.get(vm, 'x')}"] if condition else []
        lines += ["Prefer: wait=5"] if condition == "wait" else []
        prefix = f"/vm/{vm}" if way == "name" else ""
        raw = request("GET", f"{prefix}{PATH}?api-version={version}", *lines)
        self.send(vm, way, raw * 2, version, version)

    def send(self, vm, way, raw, *versions):
        line = self.line(vm, way)
        self.asked[line].extend(versions)
        self.world.run(lambda: line.feed(raw))

    def step(self, what, *more):
        stage = self.world.stage
        if what == "poll":
            self.poll(*more)
        elif what == "restart" and more[0] in stage.fleet.vms:
            self.world.run(lambda: stage.restart_vm(*more))
        elif what == "approve" and more[0] in stage.fleet.vms:
            ids = [event.id for event in stage.events(stage.vm(more[0]).scope)]
            if ids:
                self.send(more[0], "address", approval(*ids), None)
        elif what == "done":
            self.world.run(self.done)
        elif what == "pass":
            self.world.advance(seconds=more[0])
        elif what in ("move", "remove", "swap"):
            self.apply(*getattr(self, what)(*more))

    def done(self):
        """The driver is done with whatever the law has not given up."""
        stage = self.world.stage
        for key in [key for key in stage.under_way if key in stage.fleet.impacts]:
            stage.report(key)

    # What a new specification says; the law may refuse it.

    def move(self, name):
        """Into the availability set, or out of it."""
        for vm in self.spec.vms:
            if vm.name == name:
                yield vm._replace(availability_set=None if vm.availability_set else "web")
            else:
                yield vm

    def remove(self, name):
        """Out of the fleet, or back into it."""
        gone = self.removed.pop(name, None)
        if gone is not None:
            yield gone
        for vm in self.spec.vms:
            if vm.name == name:
                self.removed[name] = vm
            else:
                yield vm

    def swap(self, one, other):
        """Each gets the other's addresses."""
        given = {vm.name: vm.addresses for vm in self.spec.vms}
        if one in given and other in given:
            given[one], given[other] = given[other], given[one]
        for vm in self.spec.vms:
            yield vm._replace(addresses=given[vm.name])

    def apply(self, *vms):
        stage, spec = self.world.stage, self.spec._replace(vms=vms)
        decisions = len(stage.decisions)
        self.world.run(lambda: stage.ask(ApplyFleet(spec=spec)))
        if len(stage.decisions) > decisions:
            self.spec = spec
        self.removed = {vm.name: vm for vm in served_sample().vms if vm.name not in stage.fleet.vms}
        self.world.run(stage.tick)

    # What came back.

    def owner(self, vm, way):
        """Whose connection this is now; None for nobody's."""
        vms = self.world.stage.fleet.vms
        if way != "address":
            return vms.get(vm)
        address = ADDRESSES[vm][0]
        return next((one for one in vms.values() if address in one.addresses), None)

    def look(self):
        """Whatever anybody has received is of its own scope, and what he has still to read is."""
        for (vm, way), line in self.lines.items():
            for answer in line.read():
                version = self.asked[line].popleft()
                if answer.status == 200 and version is not None:
                    self.etags[vm] = answer.etag
                    meaning = self.meanings.setdefault((answer.etag, version), answer.body)
                    assert meaning == answer.body
                    self.must_be_own(answer, self.owner(vm, way))
                elif answer.status == 304:
                    self.must_be_known(answer, self.owner(vm, way))
                else:
                    assert answer.status in (200, 400, 403, 404)

    def must_be_own(self, answer, owner):
        stage = self.world.stage
        assert owner is not None
        for event in answer.events:
            assert stage.event(event["EventId"]).scope == owner.scope
            names = {name.removeprefix("_") for name in event["Resources"]}
            assert {stage.vm(name).scope for name in names} == {owner.scope}

    def must_be_known(self, answer, owner):
        """A 304 is of the document that the VM would be shown now."""
        assert owner is not None
        shown = self.world.stage.document(owner.scope)
        for (etag, _), body in self.meanings.items():
            if etag == answer.etag:
                told = json.loads(body)
                assert told["DocumentIncarnation"] == shown.incarnation
                ids = {event["EventId"] for event in told["Events"]}
                assert ids <= {event.id for event in shown.events}


@given(st.lists(STEPS, min_size=5, max_size=40))
@example(
    [
        ("restart", "db"),
        ("poll", "db", NEWEST, "address", ""),
        ("approve", "db"),
        ("done",),
        ("restart", "web-0"),
        ("move", "db"),
        ("poll", "db", NEWEST, "address", "old"),
    ]
)
def test_nobody_ever_sees_another_scopes_document(steps):
    """Random polls by all ways, events, time, moves, removals, addresses: only one's own."""
    with Wireless(listening=(WEB, DB)) as world:
        fleet = Neighbours(world)
        for step in steps:
            fleet.step(*step)
            fleet.look()
        world.advance(seconds=60)
        fleet.look()
