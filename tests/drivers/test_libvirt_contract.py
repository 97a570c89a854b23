"""The libvirt driver on libvirt's own test driver: the contract of the port."""

import asyncio

from fairnotice.testing import check_driver
from tests.drivers.libvirt_nodes import TestNodes


def test_the_driver_keeps_the_contract(tmp_path):
    """On two nodes; the first VM is gone in the end, and each node remembers."""
    nodes = TestNodes(tmp_path, "n1", "n2")
    nodes["n1"].run("check-0")
    nodes["n2"].run("check-1")
    asyncio.run(
        check_driver(nodes.driver, count=nodes.done, nodes=("n1", "n2"), vms=("check-0", "check-1"))
    )
    left = [one.name() for one in nodes["n1"].connection.listAllDomains(0)]
    left += [one.name() for one in nodes["n2"].connection.listAllDomains(0)]
    ours = ["fairnotice-definitions"] * 2 + ["fairnotice-ledger"] * 2
    assert sorted(left) == ["check-1", *ours]
