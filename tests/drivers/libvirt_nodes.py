"""libvirt's own test driver as nodes: machines without a guest, that remember as libvirtd does."""

import asyncio
import functools
import itertools
import os
from collections import Counter
from xml.sax.saxutils import escape

import pytest

if "CI" not in os.environ:
    pytest.importorskip("libvirt")

import libvirt

from fairnotice.clock import SystemClock
from fairnotice.drivers.driver import Order
from fairnotice.drivers.libvirt import host as hosts
from fairnotice.drivers.libvirt.definitions import kept_in
from fairnotice.drivers.libvirt.driver import LibvirtDriver
from fairnotice.drivers.libvirt.happenings import begin_events
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.records import records_in
from fairnotice.drivers.libvirt.settings import LibvirtSettings, NodeAddress
from fairnotice.words import ImpactKind, Outcome

NODE = """<node><cpu><mhz>6000</mhz><model>i686</model><active>8</active><nodes>1</nodes>
<sockets>1</sockets><cores>8</cores><threads>1</threads></cpu><memory>8192000</memory>
<pool type="dir"><name>disks</name><target><path>/disks</path></target></pool></node>"""
DOMAIN = """<domain type="test"><name>{name}</name><memory unit="MiB">64</memory>
<os><type>hvm</type></os><devices>
<disk type="file"><source file="/disks/{name}"/><target dev="vda"/></disk>
<disk type="file"><driver name="qemu" type="qcow2"/>
<source file="/disks/{name}-temp"/><target dev="vdb"/></disk>
{more}</devices></domain>"""
VOLUME = """<volume><name>{name}</name><capacity>{capacity}</capacity>
<target><format type="qcow2"/></target></volume>"""
TEMPORARY_BYTES = 5 * 1024 * 1024
RUNNING = libvirt.VIR_DOMAIN_RUNNING
# So that nobody waits for a deaf guest.
LIMITS = {"reboot_limit_seconds": 0.05, "shutdown_limit_seconds": 0.05}
# What is done to a domain, once or too often.
COUNTED = ("suspend", "reboot", "reset", "create", "shutdown", "destroy", "undefine")
# All that changes anything.
CHANGES = (
    *COUNTED,
    "resume",
    "setMetadata",
    "defineXML",
    "undefineFlags",
    "setAutostart",
    "setLifecycleAction",
)


class Died(Exception):
    """The control plane is no more."""


class Counted:
    """A domain or a connection of libvirt whose calls are counted."""

    def __init__(self, real, node):
        self.real, self.node = real, node

    def __getattr__(self, name):
        if name == "domainEventDeregisterAny":
            # Of a line that is dead as well.
            return self.node.unfollow
        self.node.asked[name] += 1
        self.node.slow()
        if self.node.away:
            return self._away(name)
        if name in self.node.instead:
            return functools.partial(self.node.instead[name], self.real)
        attribute = getattr(self.real, name)
        if name in CHANGES:
            attribute = functools.partial(self.node.around, self.node.name, name, attribute)
        if name in ("lookupByName", "defineXML"):
            return lambda *given: Counted(attribute(*given), self.node)
        if name == "listAllDomains":
            self.node.before_look()
            return lambda *given: [Counted(one, self.node) for one in attribute(*given)]
        if name == "domainEventRegisterAny":
            return self.node.follow
        if name == "getMemoryStats" and self.node.free_kib is not None:
            # The test driver has none.
            return lambda *_: {"free": self.node.free_kib, "buffers": 1024, "cached": 1024}
        if name in COUNTED:
            return self._counting(name, attribute)
        return attribute

    def _away(self, name):
        def call(*_):
            if name == "isAlive":
                return False
            raise libvirt.libvirtError("the node is away")

        return call

    def _counting(self, name, attribute):
        def call(*given):
            self.node.before(name, self.real)
            live = [one.key for one in records_in(self.real.XMLDesc(0)) if not one.ended]
            answer = attribute(*given)
            self.node.calls += [(name, key) for key in live]
            return answer

        return call

    def close(self):
        """The node lives on."""
        self.node.closed += 1


class TestNode:
    """One node, which outlives the drivers that ask it."""

    __test__ = False

    def __init__(self, folder, name):
        self.name = name
        self.calls = []
        # How often it was asked for what.
        self.asked = Counter()
        self.away = False
        # Waits for as long as the node takes to hear what it is asked.
        self.slow = lambda: None
        self.before_look = lambda: None
        self.free_kib = None
        self.before = lambda *_: None
        # What becomes of a call that changes anything: (node, name, call, *what it is given).
        self.around = lambda _, __, call, *given: call(*given)
        # What the test driver has not got, by its name: it is called with what it is asked of.
        self.instead = {}
        # Callbacks of whoever follows, with the kind of event that each is for.
        self.followers = {}
        self._kinds, self._numbers = set(), itertools.count()
        self.closed = 0
        file = folder / f"{name}.xml"
        file.write_text(NODE)
        begin_events()
        self.connection = libvirt.open(f"test://{file}")

    def opened(self):
        """As a driver opens it."""
        if self.away:
            raise libvirt.libvirtError("nobody is there")
        return Counted(self.connection, self)

    def follow(self, _, kind, callback, opaque):
        """One connection of libvirt takes a callback once; here all who ask for it share it."""
        if kind not in self._kinds:
            self._kinds.add(kind)
            self.connection.domainEventRegisterAny(
                None, kind, functools.partial(self._tell, kind), opaque
            )
        number = next(self._numbers)
        self.followers[number] = (kind, callback)
        return number

    def unfollow(self, number):
        """This one is told nothing any more."""
        del self.followers[number]

    def _tell(self, kind, *given):
        for of, callback in list(self.followers.values()):
            if of == kind:
                callback(*given)

    @property
    def pool(self):
        """Where its disks are."""
        return self.connection.storagePoolLookupByName("disks")

    def add_disk(self, name, capacity=TEMPORARY_BYTES):
        """One that somebody has made."""
        self.pool.createXML(VOLUME.format(name=escape(name), capacity=capacity))

    def run(self, name, label=Label(), more=""):  # noqa: B008
        """A labeled domain that runs, with a disk and a temporary one."""
        self.add_disk(f"{name}-temp")
        domain = self.connection.defineXML(DOMAIN.format(name=escape(name), more=more))
        hosts.set_label(domain, label)
        domain.create()
        return domain


class TestNodes:
    """Several, and drivers for them."""

    __test__ = False

    def __init__(self, folder, *names):
        self.nodes = {name: TestNode(folder, name) for name in names}
        self._epochs = itertools.count(1)

    def __getitem__(self, name):
        return self.nodes[name]

    def driver(self, clock=None, **settings):
        """A new life of the control plane's driver."""
        settings.setdefault("reboot_limit_seconds", 0.5)
        settings.setdefault("shutdown_limit_seconds", 0.5)
        addresses = {name: NodeAddress(f"test:///{name}") for name in self.nodes}
        settings.setdefault("nodes", addresses)
        of = {address.uri: self.nodes[name] for name, address in settings["nodes"].items()}
        return LibvirtDriver(
            LibvirtSettings(**settings), clock or SystemClock(), lambda uri: of[uri].opened()
        )

    def done(self, key):
        """How often what this key stands for was done to a machine."""
        done = [name for node in self.nodes.values() for name, of in node.calls if of == key]
        return max((done.count(name) for name in COUNTED), default=0)


# Only what moves has somewhere to go.
MOVING_KINDS = (ImpactKind.REDEPLOY, ImpactKind.MIGRATE, ImpactKind.START)


def order(kind, key="op/vm", **more):
    """An order for the one VM."""
    more.setdefault("target", "n2" if kind in MOVING_KINDS else None)
    return Order(key=key, vm="vm", kind=kind, node="n1", duration_seconds=0, **more)


async def ended(driver, key, epoch):
    """How it ended, once it has."""
    while True:
        report = await driver.outcome(key, epoch)
        if report.outcome is not Outcome.UNDER_WAY:
            return report
        await asyncio.sleep(0.02)


def states(nodes):
    """Where the VM has a domain, and in what state."""
    return {
        name: domain.state()[0]
        for name, node in nodes.nodes.items()
        for domain in node.connection.listAllDomains(0)
        if domain.name() == "vm"
    }


def fresh_nodes(folder):
    """Two nodes and a running VM, anew each time; a deaf one does not hear its button."""
    numbers = itertools.count()

    def made(*, deaf=False):
        there = folder / str(next(numbers))
        there.mkdir()
        nodes = TestNodes(there, "n1", "n2")
        nodes["n1"].run("vm", Label())
        surround(nodes, lambda _: None, deaf=deaf)
        return nodes

    return made


def surround(nodes, before, after=lambda _: None, *, deaf=False):
    """Have these told of each change, by node and name; what they raise is what becomes of it."""

    def around(node, name, call, *given):
        before((node, name))
        answer = None if deaf and name == "shutdown" else call(*given)
        after((node, name))
        return answer

    for node in nodes.nodes.values():
        node.around = around


def impact_of(nodes, kind, epoch=1, **more):
    """What one impact comes to, by a driver of its own that has looked around."""

    async def story():
        driver = nodes.driver(**LIMITS)
        await driver.survey(epoch)
        report = await driver.impact(order(kind)._replace(**more), epoch)
        await driver.close()
        return report

    return asyncio.run(story())


def died_at_any_change(made, kind):
    """VMs in the middle of whose impact a control plane died, and the next one has ended it.

    Before and after each change that it makes. What `made` makes has `nodes`, `calls` and
    `surround`.
    """

    async def story(vm, at, where):
        calls = []

        def die(call):
            calls.append(call)
            if len(calls) > at:
                raise Died

        vm.surround(**{where: die})
        first = vm.nodes.driver(**LIMITS)
        (died,) = await asyncio.gather(first.impact(order(kind), 1), return_exceptions=True)
        vm.surround()
        later = vm.nodes.driver(**LIMITS)
        report = await ended(later, "op/vm", 2)
        if report.outcome is Outcome.NOT_BEGUN:
            report = await later.impact(order(kind), 2)
        await first.close()
        await later.close()
        return isinstance(died, Died), report

    for where in ("before", "after"):
        for at in itertools.count():
            vm = made()
            died, report = asyncio.run(story(vm, at, where))
            assert report.outcome is Outcome.DONE, (where, at, report, vm.calls)
            yield vm
            if not died:
                assert at > 5
                break


def survey(nodes, times=1):
    """A control plane looks around, and ends."""

    async def story():
        driver = nodes.driver()
        for _ in range(times):
            await driver.survey(1)
        await driver.close()

    asyncio.run(story())


def kept(nodes):
    """Which node keeps the definitions of which VMs."""
    return {
        name: kept_in(domain.XMLDesc(0))
        for name, node in nodes.nodes.items()
        for domain in node.connection.listAllDomains(0)
        if domain.name() == hosts.DEFINITIONS
    }
