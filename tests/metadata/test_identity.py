"""Who asks: by address, by unix socket, by /vm/NAME; nobody sees another scope's document."""

import json
from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairnotice.engine.commands import ApplyFleet
from fairnotice.metadata import identity
from fairnotice.metadata.identity import Door
from tests.engine.story import BATCH, DB, SHOP, SPOT, WEB
from tests.metadata.wireless import (
    ADDRESSES,
    DB_0,
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
    """403, as for any stranger."""
    assert wireless().ask(get(), "", Door(vm="nobody")).status == 403


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
    assert "vm-077123" in identity.nearest_names(board, "vm-077123x")
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
)


class Neighbours:
    """The fleet under random polls and events; every VM keeps one connection of each kind."""

    def __init__(self, world):
        self.world = world
        self.lines = {}
        self.etags = {}

    def line(self, vm, way):
        doors = {"address": Door(), "unix": Door(vm=vm), "name": LAPTOP}
        line = self.lines.get((vm, way))
        if line is None or line.is_closing():
            address = ADDRESSES[vm][0] if way == "address" else "127.0.0.1"
            line = self.lines[vm, way] = self.world.connect(address, doors[way])
        return line

    def poll(self, vm, version, way, condition):
        lines = [f"If-None-Match: {self.etags.get(vm, 'x')}"] if condition else []
        lines += ["Prefer: wait=5"] if condition == "wait" else []
        prefix = f"/vm/{vm}" if way == "name" else ""
        raw = request("GET", f"{prefix}{PATH}?api-version={version}", *lines)
        self.send(vm, way, raw * 2)

    def send(self, vm, way, raw):
        line = self.line(vm, way)
        self.world.run(lambda: line.feed(raw))

    def step(self, what, *more):
        stage = self.world.stage
        if what == "poll":
            self.poll(*more)
        elif what == "restart":
            self.world.run(lambda: stage.restart_vm(*more))
        elif what == "approve":
            ids = [event.id for event in stage.events(stage.vm(more[0]).scope)]
            if ids:
                self.send(more[0], "address", approval(*ids))
        elif what == "done":
            self.world.run(self.done)
        else:
            self.world.advance(seconds=more[0])

    def done(self):
        """The driver is done with whatever the law has not given up."""
        stage = self.world.stage
        for key in [key for key in stage.under_way if key in stage.fleet.impacts]:
            stage.report(key)

    def look(self):
        """Whatever anybody has received names VMs and events of its own scope only."""
        stage = self.world.stage
        for (vm, _), line in self.lines.items():
            scope = stage.vm(vm).scope
            for answer in line.read():
                if answer.status == 200 and answer.body:
                    self.etags[vm] = answer.etag
                    for event in answer.events:
                        assert stage.event(event["EventId"]).scope == scope
                        names = {name.removeprefix("_") for name in event["Resources"]}
                        assert {stage.vm(name).scope for name in names} == {scope}


@given(st.lists(STEPS, min_size=5, max_size=40))
def test_nobody_ever_sees_another_scopes_document(steps):
    """Random polls by all ways, events, approvals and time: only one's own is ever shown."""
    with Wireless(listening=(WEB, DB)) as world:
        fleet = Neighbours(world)
        for step in steps:
            fleet.step(*step)
            fleet.look()
        world.advance(seconds=60)
        fleet.look()
