"""How VMs are defined is kept on other nodes: what is kept is as it is now, and nothing else."""

import asyncio
from contextlib import suppress

import pytest

from fairnotice.drivers.libvirt import definitions, host, labels, records
from fairnotice.drivers.libvirt.definitions import Definitions, kept_in
from fairnotice.drivers.libvirt.host import DEFINITIONS, Sight
from fairnotice.drivers.libvirt.labels import Label
from fairnotice.errors import Unavailable
from fairnotice.testing.manual_clock import ManualClock
from fairnotice.words import ImpactKind, Outcome
from tests.drivers.libvirt_nodes import RUNNING, TestNodes, kept, libvirt, order, survey

GRAPHICS = '<graphics type="vnc" passwd="secret"/>'
OLD_KIB, NEW_KIB = 65536, 32768
LARGER_BYTES = 50 * 1024 * 1024


@pytest.fixture
def nodes(tmp_path):
    """Three nodes, and a VM with an ephemeral disk on the first."""
    three = TestNodes(tmp_path, "n1", "n2", "n3")
    three["n1"].run("vm", Label(ephemeral_disks=("vdb",)))
    return three


def edit(nodes, old=f">{OLD_KIB}<", new=f">{NEW_KIB}<", name="vm"):
    """Somebody defines the domain on n1 anew; what runs goes on as it is."""
    xml = nodes["n1"].connection.lookupByName(name).XMLDesc(2)
    assert old in xml
    nodes["n1"].connection.defineXML(xml.replace(old, new))


def lock(nodes):
    """It gets a password."""
    edit(nodes, "</devices>", f"{GRAPHICS}</devices>")


def test_a_definition_is_kept_anew_when_it_changes_and_not_else(nodes):
    """An impact changes nothing of it; whoever edits a domain does, running or not."""

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        before = kept(nodes)
        await driver.impact(order(ImpactKind.FREEZE), 1)
        await driver.survey(1)
        after_a_freeze = kept(nodes)
        edited = nodes["n1"].connection.lookupByName("vm").XMLDesc(2).replace(">65536<", ">32768<")
        nodes["n1"].connection.defineXML(edited)
        await driver.news()
        await driver.survey(1)
        await driver.close()
        return before, after_a_freeze, kept(nodes)

    before, after_a_freeze, after_an_edit = asyncio.run(story())
    assert sorted(before) == ["n2", "n3"]
    assert after_a_freeze == before
    assert "32768" in after_an_edit["n2"]["vm"].definition.xml
    assert "op/vm" not in before["n2"]["vm"].definition.xml


def test_a_change_of_a_domain_with_an_odd_name_is_kept(nodes):
    """In XML it is written otherwise; what is changed is only how it will be started next."""
    domain = nodes["n1"].run("a&b <c>")

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        nodes["n1"].connection.defineXML(domain.XMLDesc(2).replace(">65536<", ">32768<"))
        await asyncio.wait_for(driver.news(), 10)
        await driver.survey(1)
        await driver.close()

    asyncio.run(story())
    assert ">32768<" in kept(nodes)["n2"]["a&b <c>"].definition.xml


def silently(nodes):
    """QEMU tells of no change to how a domain will be started next."""
    node = nodes["n1"]
    node.followers = {
        number: (kind, lambda *_: None) for number, (kind, _) in node.followers.items()
    }
    edit(nodes)


def on_a_line_that_was_lost(nodes):
    """Nobody could be told."""
    nodes["n1"].away = True


@pytest.mark.parametrize("change", [silently, on_a_line_that_was_lost])
def test_a_change_that_nobody_tells_of_is_kept_at_the_next_look(nodes, change):
    """What runs shows nothing of it; when its node fails, the VM has it."""

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        before = nodes["n1"].connection.lookupByName("vm").XMLDesc(0)
        change(nodes)
        await driver.survey(1)
        if nodes["n1"].away:
            edit(nodes)
            nodes["n1"].away = False
            await driver.survey(1)
        assert nodes["n1"].connection.lookupByName("vm").XMLDesc(0) == before
        assert f">{NEW_KIB}<" in kept(nodes)["n2"]["vm"].definition.xml
        nodes["n1"].away = True
        report = await redeploys(driver, 1)
        await driver.close()
        return report.outcome

    assert asyncio.run(story()) is Outcome.DONE
    assert nodes["n2"].connection.lookupByName("vm").maxMemory() == NEW_KIB


class Edited:
    """A node whose one domain may be defined anew while it is read; it runs on as it was."""

    name = "n1"

    def __init__(self):
        self.xml = "<domain><name>vm</name><memory>1</memory></domain>"
        self.meanwhile = lambda: None

    @property
    def seen(self):
        """As a look at all has it."""
        on = {"active": True, "persistent": True, "state": RUNNING, "reason": 1, "given_up": False}
        return {"vm": ("n1", Sight("vm", "vm", Label(), "u", xml="", next_xml=self.xml, **on))}

    async def defined(self, _):
        xml = self.xml
        await asyncio.sleep(0)
        self.meanwhile()
        return xml, False, {}

    async def kept_definitions(self):
        return "<domain/>"


def test_a_disk_that_was_made_larger_while_its_vm_was_off_is_known_so(nodes):
    """How the VM starts is the same: only that it was started anew tells of it."""
    domain = nodes["n1"].connection.lookupByName("vm")

    async def story():
        driver = nodes.driver()
        await driver.survey(1)
        domain.destroy()
        await driver.survey(1)
        nodes["n1"].pool.storageVolLookupByName("vm-temp").delete(0)
        nodes["n1"].add_disk("vm-temp", LARGER_BYTES)
        domain.create()
        await driver.survey(1)
        await driver.close()

    asyncio.run(story())
    keeper = nodes["n2"].connection.lookupByName(DEFINITIONS)
    assert dict(kept_in(keeper.XMLDesc(0))["vm"].definition.capacities) == {"vdb": LARGER_BYTES}


def test_a_domain_that_is_defined_anew_while_it_is_read_is_read_again():
    """The answer is older, and so is what was looked at."""

    async def story():
        node = Edited()
        definitions = Definitions({"n1": node}, ManualClock())

        def edit():
            node.xml = node.xml.replace(">1<", ">2<")

        node.meanwhile = edit
        for _ in range(2):
            await definitions.keep(node.seen, ["n1"])
        return await definitions.find("vm")

    assert "<memory>2<" in asyncio.run(story()).xml


@pytest.mark.parametrize("error", [Unavailable("planted"), asyncio.CancelledError()])
def test_a_domain_that_could_not_be_read_is_read_again(error):
    """The node was away for a moment, or nobody waited for it any more."""

    async def story():
        node, failures = Edited(), [error]

        def fail():
            if failures:
                raise failures.pop()

        node.meanwhile = fail
        definitions = Definitions({"n1": node}, ManualClock())
        for _ in range(2):
            with suppress(asyncio.CancelledError):
                await definitions.keep(node.seen, ["n1"])
        return await definitions.find("vm")

    assert "<memory>1<" in asyncio.run(story()).xml


def test_the_definition_of_one_that_is_gone_is_forgotten(nodes):
    """But only when every node was asked, twice: at one look it may be on its way."""
    survey(nodes)
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.destroy()
    domain.undefine()
    nodes["n3"].away = True
    survey(nodes)
    assert "vm" in kept(nodes)["n2"]
    nodes["n3"].away = False
    nodes["n1"].run("other")
    survey(nodes)
    assert [sorted(vms) for vms in kept(nodes).values()] == [["other", "vm"], ["other", "vm"]]
    survey(nodes, times=2)
    assert [sorted(vms) for vms in kept(nodes).values()] == [["other"], ["other"]]


def test_a_definition_with_a_password_is_written_nowhere_else(nodes):
    """Everybody on a node can read the metadata of its domains; while we live we know it."""
    nodes["n1"].run("open", more='<graphics type="vnc"/>')
    nodes["n1"].run("closed", more=GRAPHICS)
    survey(nodes)
    assert sorted(kept(nodes)["n2"]) == ["open", "vm"]
    # One that gets a password later is taken out again.
    xml = nodes["n1"].connection.lookupByName("open").XMLDesc(2)
    nodes["n1"].connection.defineXML(xml.replace("type='vnc'", "type='vnc' passwd='secret'", 1))
    survey(nodes)
    assert sorted(kept(nodes)["n2"]) == sorted(kept(nodes)["n3"]) == ["vm"]
    assert "secret" not in nodes["n2"].connection.lookupByName(DEFINITIONS).XMLDesc(0)


# ---- A node has failed ----


def looks(nodes, failed, times=3):
    """What is kept, and whether all is known, after these looks."""

    async def story():
        driver = nodes.driver()
        for _ in range(times):
            survey = await driver.survey(1, frozenset(failed))
        await driver.close()
        return survey

    return asyncio.run(story())


def test_who_is_gone_elsewhere_is_forgotten_though_a_node_has_failed(nodes):
    """It stays in serve.toml, and is not missed; one that is only away may have the VM."""
    nodes["n1"].run("other")
    survey(nodes)
    nodes["n3"].away = True
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.destroy()
    domain.undefine()
    assert not looks(nodes, failed=[]).whole
    assert not looks(nodes, failed=["n2"]).whole
    assert sorted(kept(nodes)["n2"]) == ["other", "vm"]
    assert looks(nodes, failed=["n3"]).whole
    assert sorted(kept(nodes)["n2"]) == ["other"]


@pytest.mark.parametrize("power", ["running", "stopped", "given up"])
@pytest.mark.parametrize("earlier", [False, True])
def test_how_a_vm_was_defined_is_known_for_as_long_as_its_node_has_failed(nodes, power, earlier):
    """There may be no room for it for weeks. An earlier version has not written where it was."""
    domain = nodes["n1"].connection.lookupByName("vm")
    if power != "running":
        domain.destroy()
        host.give_up_place(domain, given_up=power == "given up")
    survey(nodes)
    if earlier:
        for name in ("n2", "n3"):
            book = nodes[name].connection.lookupByName(DEFINITIONS)
            (element,) = records.elements(book.XMLDesc(0), records.DEFINITION)
            old = definitions.written("vm", kept(nodes)[name]["vm"])
            uri = element.tag[1:].partition("}")[0]
            book.setMetadata(2, old.replace('node="n1"', ""), records.PREFIX, uri, 2)
            assert kept(nodes)[name]["vm"].node == ""
    nodes["n1"].away = True
    assert looks(nodes, failed=["n1"]).whole
    assert keepers(nodes) == ["n2", "n3"]

    async def story():
        driver = nodes.driver()
        report = await redeploys(driver, 1)
        await driver.close()
        return report.outcome

    assert asyncio.run(story()) is Outcome.DONE


def test_a_node_that_has_failed_and_answers_counts_as_any_other(nodes):
    """What is there is found; a label that cannot be read may be anybody's."""
    survey = looks(nodes, failed=["n1"])
    assert [(one.vm, one.node) for one in survey.found] == [("vm", "n1")]
    assert (survey.whole, "n1" in survey.reached) == (True, True)
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.setMetadata(2, '<vm colour="red"/>', "fairnotice", labels.LABEL, 3)
    assert not looks(nodes, failed=["n1"]).whole
    assert keepers(nodes) == ["n2", "n3"]


# ---- On whom they are, and on nobody else ----


@pytest.fixture
def ring(tmp_path):
    """Four nodes, and a VM on the first."""
    four = TestNodes(tmp_path, "n1", "n2", "n3", "n4")
    four["n1"].run("vm")
    return four


def moves(nodes, *way):
    """It goes from node to node, and everybody is looked at after each move."""

    async def story():
        driver, node = nodes.driver(), "n1"
        await driver.survey(1)
        for number, target in enumerate(way):
            wanted = order(ImpactKind.REDEPLOY, f"{number}/vm", target=target)
            report = await driver.impact(wanted._replace(node=node), 1)
            assert report.outcome is Outcome.DONE
            await driver.survey(1)
            node = target
        await driver.close()

    asyncio.run(story())


def keepers(nodes):
    """Which nodes keep how the VM is defined."""
    return sorted(name for name, vms in kept(nodes).items() if "vm" in vms)


@pytest.mark.parametrize(
    ("way", "left"),
    [((), ["n2", "n3"]), (("n3",), ["n1", "n4"]), (("n2", "n3", "n4"), ["n1", "n2"])],
)
def test_only_the_next_two_nodes_keep_a_definition(ring, way, left):
    """Whoever did before a move has it as it was then: it is taken out."""
    moves(ring, *way)
    assert keepers(ring) == left


def test_a_node_that_keeps_nothing_has_no_domain_for_it(nodes):
    """To look whether it does makes none."""
    survey(nodes, times=2)
    assert sorted(kept(nodes)) == ["n2", "n3"]


def refuse(_, name, call, *given):
    """No definition is taken in or out."""
    if name == "setMetadata" and given[3].startswith(records.DEFINITION):
        raise libvirt.libvirtError("the disk is full")
    return call(*given)


def test_a_definition_is_taken_out_only_when_it_is_kept_elsewhere(ring):
    """The next one is back, and cannot write it: whoever had it meanwhile has it still."""
    ring["n2"].away = True
    survey(ring)
    ring["n2"].away = False
    takes, ring["n2"].around = ring["n2"].around, refuse
    survey(ring)
    assert keepers(ring) == ["n3", "n4"]
    ring["n2"].around = takes
    survey(ring)
    assert keepers(ring) == ["n2", "n3"]


@pytest.mark.parametrize("way", [(), ("n3", "n1"), ("n2", "n3", "n4", "n1")])
def test_one_with_a_password_leaves_no_copy_from_before_on_anybody(ring, way):
    """Nor on whoever was away; one that refuses keeps no other. After a restart nobody knows it."""
    moves(ring, *way)
    first = keepers(ring)[0]
    takes, ring[first].around = ring[first].around, refuse
    lock(ring)
    survey(ring)
    assert keepers(ring) == [first]
    ring[first].around, ring[first].away = takes, True
    survey(ring)
    ring[first].away = False
    survey(ring)
    assert keepers(ring) == []
    ring["n1"].away = True

    async def story():
        later = ring.driver()
        await later.survey(2)
        report = await redeploys(later, 2)
        await later.close()
        return report.reason

    assert asyncio.run(story()) == "there is no domain of vm, and nobody keeps its definition"


@pytest.mark.parametrize("others", [(), ("other",)])
def test_the_definition_of_one_that_went_before_a_restart_is_forgotten(nodes, others):
    """Also where no other VM is left."""
    survey(nodes)
    domain = nodes["n1"].connection.lookupByName("vm")
    domain.destroy()
    domain.undefine()
    for other in others:
        nodes["n1"].run(other)
    survey(nodes, times=2)
    assert keepers(nodes) == []


# ---- Another control plane has led meanwhile ----


def redeploys(driver, epoch, vm="vm", node="n1", target="n2"):
    """Its node is gone, and it is to run elsewhere."""
    failed = order(ImpactKind.REDEPLOY, f"{epoch}/{vm}", failed_nodes=frozenset({node}))
    return driver.impact(failed._replace(vm=vm, node=node, target=target), epoch)


def leads_again(nodes, vm, meanwhile, *, looks):
    """One leads, another, and the first one again; then the VM's node is gone."""

    async def story():
        first, second = nodes.driver(), nodes.driver()
        await first.survey(1)
        meanwhile(nodes)
        await second.survey(2)
        nodes["n1"].away = True
        if looks:
            await first.survey(3)
        report = await redeploys(first, 3, vm)
        await first.close()
        await second.close()
        return report

    return asyncio.run(story())


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize(
    ("vm", "meanwhile"), [("vm", edit), ("new", lambda nodes: nodes["n1"].run("new"))]
)
def test_whoever_leads_again_starts_a_vm_as_others_have_seen_it_since(nodes, vm, meanwhile, looks):
    """It was defined anew, or made, while another led; whatever is asked first."""
    assert leads_again(nodes, vm, meanwhile, looks=looks).outcome is Outcome.DONE
    there = nodes["n2"].connection.lookupByName(vm)
    assert there.maxMemory() == (NEW_KIB if vm == "vm" else OLD_KIB)


@pytest.mark.parametrize("looks", [True, False])
def test_whoever_leads_again_starts_nothing_as_it_was_before_it_had_a_password(nodes, looks):
    """Only the other one has seen it since: nobody else may know how it is."""
    report = leads_again(nodes, "vm", lock, looks=looks)
    assert report.reason == "there is no domain of vm, and nobody keeps its definition"


def test_what_was_missed_by_whoever_led_before_is_not_missed_again(nodes):
    """It was on its way then, and is again: its definition is still kept."""

    async def story():
        first, second = nodes.driver(), nodes.driver()
        await first.survey(1)
        domain = nodes["n1"].connection.lookupByName("vm")
        domain.destroy()
        domain.undefine()
        await first.survey(1)
        await second.survey(2)
        await first.survey(3)
        still = "vm" in kept(nodes)["n2"]
        await first.survey(3)
        await first.close()
        await second.close()
        return still, "vm" in kept(nodes)["n2"]

    assert asyncio.run(story()) == (True, False)
