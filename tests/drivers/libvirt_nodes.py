"""libvirt's own test driver as nodes: machines without a guest, that remember as libvirtd does."""

import itertools
import os

import pytest

if "CI" not in os.environ:
    pytest.importorskip("libvirt")

import libvirt

from fairnotice.clock import SystemClock
from fairnotice.drivers.libvirt import host as hosts
from fairnotice.drivers.libvirt.driver import LibvirtDriver
from fairnotice.drivers.libvirt.happenings import begin_events
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.drivers.libvirt.records import records_in
from fairnotice.drivers.libvirt.settings import LibvirtSettings, NodeAddress

NODE = """<node><cpu><mhz>6000</mhz><model>i686</model><active>8</active><nodes>1</nodes>
<sockets>1</sockets><cores>8</cores><threads>1</threads></cpu><memory>8192000</memory></node>"""
DOMAIN = """<domain type="test"><name>{name}</name><memory unit="MiB">64</memory>
<os><type>hvm</type></os><devices>
<disk type="file"><source file="/disks/{name}"/><target dev="vda"/></disk>
<disk type="file"><source file="/disks/{name}-temp"/><target dev="vdb"/></disk>
</devices></domain>"""
# What is done to a domain, once or too often.
COUNTED = ("suspend", "reboot", "reset", "create", "shutdown", "destroy", "undefine")


class Counted:
    """A domain or a connection of libvirt whose calls are counted."""

    def __init__(self, real, node):
        self.real, self.node = real, node

    def __getattr__(self, name):
        if self.node.away:
            return self._away(name)
        attribute = getattr(self.real, name)
        if name in ("lookupByName", "defineXML"):
            return lambda *given: Counted(attribute(*given), self.node)
        if name == "listAllDomains":
            return lambda *given: [Counted(one, self.node) for one in attribute(*given)]
        if name == "domainEventRegisterAny":
            return self.node.follow
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


class TestNode:
    """One node, which outlives the drivers that ask it."""

    __test__ = False

    def __init__(self, folder, name):
        self.name = name
        self.calls = []
        self.away = False
        self.before = lambda *_: None
        self._followers = {}
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
        followers = self._followers.setdefault(kind, [])
        followers.append(callback)

        def tell(*given):
            for one in followers:
                one(*given)

        if len(followers) == 1:
            self.connection.domainEventRegisterAny(None, kind, tell, opaque)

    def run(self, name, label=Label()):  # noqa: B008
        """A labeled domain that runs."""
        domain = self.connection.defineXML(DOMAIN.format(name=name))
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
        return LibvirtDriver(
            LibvirtSettings(nodes=addresses, **settings),
            clock or SystemClock(),
            lambda uri: self.nodes[uri.removeprefix("test:///")].opened(),
        )

    def done(self, key):
        """How often what this key stands for was done to a machine."""
        done = [name for node in self.nodes.values() for name, of in node.calls if of == key]
        return max((done.count(name) for name in COUNTED), default=0)
