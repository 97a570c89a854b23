"""One real VM through every impact: announced, approved from inside, done, and proven."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Self

import libvirt

from tests.vms import guest
from tests.vms.cloud import Cloud, wait_until
from tests.vms.nodes import CLOCK

VM, ADDRESS = "vm0", "10.77.0.10"
RUNNING, PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED
FREEZE_SECONDS = 3
LOOK_SECONDS = 0.1


class Proof(NamedTuple):
    """What was seen of one impact."""

    what: str
    event: str
    seconds: float
    proof: str

    def lines(self) -> tuple[str, ...]:
        """The same for people, as wide as a terminal."""
        margin = " " * 17
        return (
            f"{self.what:>15}: event {self.event},",
            f"{margin}approved from inside, done {self.seconds:.1f} s after it was asked for:",
            f"{margin}{self.proof}",
        )


def walk(cloud: Cloud) -> Iterator[Proof]:
    """Freeze, reboot, live migration, redeploy and terminate, one after the other."""
    words = ("node", "maintain", "n1", "--duration", str(FREEZE_SECONDS))
    with Watch(cloud) as watch:
        yield _step(cloud, "Freeze", words, partial(_frozen, watch))
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


class Watch:
    """Looks at the VM from outside, again and again: for how long it is paused and silent."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        # Each look at a paused VM: when, and how often its guest had ticked.
        self._paused: list[tuple[float, int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            if PAUSED in self._cloud.states(VM).values():
                self._paused.append((CLOCK.monotonic(), self._cloud.ticks(VM)))

    def paused_seconds(self) -> float:
        """Between the first look and the last; 0 where it was never seen so."""
        return self._paused[-1][0] - self._paused[0][0] if self._paused else 0.0

    def ticks_while_paused(self) -> int:
        """What came over its console meanwhile; the first look may come before its last word."""
        return self._paused[-1][1] - self._paused[1][1]


def _frozen(watch: Watch, cloud: Cloud, before: Before) -> str:
    _goes_on(cloud)
    assert cloud.boots(VM) == before.boots
    assert cloud.states(VM) == {"n1": RUNNING}
    held = watch.paused_seconds()
    # Seen at some looks: a bit less than it was, and not much more.
    assert FREEZE_SECONDS - 1 < held < FREEZE_SECONDS + 2, held
    assert watch.ticks_while_paused() == 0
    paused = f"paused for {held:.1f} s (announced: {FREEZE_SECONDS} s)"
    return f"the same boot {before.boots[-1][:8]}, {paused}, and silent meanwhile"


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
