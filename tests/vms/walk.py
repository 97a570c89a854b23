"""One real VM through every impact: announced, approved from inside, done, and proven."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import libvirt

from tests.vms import guest
from tests.vms.cloud import Cloud, wait_until
from tests.vms.nodes import CLOCK

VM, ADDRESS = "vm0", "10.77.0.10"
RUNNING = libvirt.VIR_DOMAIN_RUNNING
FREEZE_SECONDS = 3


class Proof(NamedTuple):
    """What was seen of one impact."""

    what: str
    event: str
    seconds: float
    proof: str


def walk(cloud: Cloud) -> Iterator[Proof]:
    """Freeze, reboot, live migration, redeploy and terminate, one after the other."""
    yield _step(
        cloud, "Freeze", ("node", "maintain", "n1", "--duration", str(FREEZE_SECONDS)), _frozen
    )
    yield _step(cloud, "Reboot", ("vm", "restart", VM), _rebooted)
    yield _step(cloud, "live migration", ("node", "migrate", "n1"), _migrated)
    run_uncordon(cloud)
    yield _step(cloud, "Redeploy", ("vm", "redeploy", VM), _redeployed)
    yield _step(cloud, "Terminate", ("vm", "delete", VM), _terminated)


def run_uncordon(cloud: Cloud) -> None:
    """Return the node to service, where it was taken out of it."""
    for node in cloud.ask("node", "list")["items"]:
        if node["state"] == "cordoned":
            cloud.ask("node", "uncordon", node["name"])


class Before(NamedTuple):
    """The VM before an impact."""

    boots: list[str]
    ticks: int
    approved: int


def _step(
    cloud: Cloud, what: str, words: tuple[str, ...], prove: Callable[[Cloud, Before], str]
) -> Proof:
    wait_until("the guest is answered", lambda: cloud.ticks(VM) > 0)
    before = Before(cloud.boots(VM), cloud.ticks(VM), len(cloud.said(VM, guest.APPROVED)))
    began = CLOCK.monotonic()
    cloud.ask(*words)
    operation = cloud.wait_for_end()
    assert operation["status"] == "Completed", operation
    seconds = CLOCK.monotonic() - began
    approved = cloud.said(VM, guest.APPROVED)[before.approved :]
    assert approved, f"{what} was not approved from inside"
    assert approved[0][1] in operation["events"], (approved, operation)
    return Proof(what, approved[0][1], seconds, prove(cloud, before))


def _goes_on(cloud: Cloud) -> None:
    ticks = cloud.ticks(VM)
    wait_until("the guest is answered again", lambda: cloud.ticks(VM) > ticks)


def _frozen(cloud: Cloud, before: Before) -> str:
    _goes_on(cloud)
    assert cloud.boots(VM) == before.boots
    assert cloud.states(VM) == {"n1": RUNNING}
    return f"the same boot {before.boots[-1][:8]}, held for {FREEZE_SECONDS} s"


def _rebooted(cloud: Cloud, before: Before) -> str:
    wait_until("the guest has booted", lambda: len(cloud.boots(VM)) > len(before.boots))
    _goes_on(cloud)
    assert len(cloud.boots(VM)) == len(before.boots) + 1
    assert cloud.states(VM) == {"n1": RUNNING}
    return f"boot {before.boots[-1][:8]} became {cloud.boots(VM)[-1][:8]}, once"


def _migrated(cloud: Cloud, before: Before) -> str:
    _goes_on(cloud)
    assert cloud.boots(VM) == before.boots
    assert cloud.states(VM) == {"n2": RUNNING}
    return f"the same boot {before.boots[-1][:8]}, now on n2"


def _redeployed(cloud: Cloud, before: Before) -> str:
    wait_until("the guest has booted", lambda: len(cloud.boots(VM)) > len(before.boots))
    _goes_on(cloud)
    assert len(cloud.boots(VM)) == len(before.boots) + 1
    assert cloud.states(VM) == {"n1": RUNNING}
    return f"boot {before.boots[-1][:8]} became {cloud.boots(VM)[-1][:8]}, on n1"


def _terminated(cloud: Cloud, _: Before) -> str:
    assert cloud.states(VM) == {}
    return "no node has a domain of it any more"
