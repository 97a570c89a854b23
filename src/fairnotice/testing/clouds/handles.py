"""What a test holds of a cloud: a VM, a node, a scale set, a rollout, an event.

A handle knows a name and looks at the cloud each time it is asked, so it never shows what is past.
"""

from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from fairnotice.control import bodies, shapes
from fairnotice.control.service import Result, Who
from fairnotice.drivers.simulated.machine import Machine
from fairnotice.engine.commands import Approve
from fairnotice.errors import UsageError
from fairnotice.model import Requester
from fairnotice.words import EventStatus, EventType, Power, Risk, Role, RolloutStatus

if TYPE_CHECKING:
    from fairnotice.testing.clouds.cloud import Cloud

# What maintenance does to the VMs of a node.
Impact = Literal["freeze", "reboot"]
# Who asks, where a test does.
TEST = Who(Requester("test", Role.OPERATOR))


class Handle:
    """Something in a cloud, by its name."""

    def __init__(self, cloud: "Cloud", name: str) -> None:
        self._cloud = cloud
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, type(self)) and other._cloud is self._cloud
        return same and other.name == self.name  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.name)

    def _events(self, asked: Coroutine[Any, Any, Result]) -> "list[CloudEvent]":
        accepted = self._cloud.done(asked)
        return [CloudEvent(self._cloud, event.id) for event in accepted.events]


class CloudEvent(Handle):
    """An event; `name` is its id."""

    @property
    def id(self) -> str:
        """The EventId, as the document has it."""
        return self.name

    def __repr__(self) -> str:
        shown = self.look()
        return f"<{shown.type} of {', '.join(shown.resources)}, {shown.status}, {self.name}>"

    def look(self) -> shapes.Event:
        """All that the control plane shows of it now; errors.UnknownName where there is none."""
        return self._cloud.call(self._cloud.service.event(self.name))

    @property
    def type(self) -> EventType:
        """Freeze, Reboot, Redeploy, Preempt or Terminate."""
        return self.look().type

    @property
    def status(self) -> EventStatus:
        """Scheduled, Started, Completed or Canceled."""
        return self.look().status

    @property
    def resources(self) -> list[str]:
        """The VMs that it names."""
        return self.look().resources

    @property
    def not_before(self) -> datetime:
        """When it may begin without approval."""
        return self.look().not_before

    @property
    def approved_by(self) -> str | None:
        """Who gave the go-ahead; None where nobody has."""
        return next((approval.by for approval in self.look().approvals), None)

    @property
    def seen_by(self) -> list[str]:
        """The VMs that were served it."""
        self._cloud.hand_on()
        return [seen.vm for seen in self.look().seen]

    def history(self) -> list[shapes.Step]:
        """Its story until now, in steps."""
        return self._cloud.call(self._cloud.service.history(self.name)).steps

    def approve(self, *, by: str | None = None) -> None:
        """Give the go-ahead: as this VM, or at the control plane."""
        if by is None:
            self._cloud.done(self._cloud.service.approve(self.name, TEST))
        else:
            vm = self._cloud.vm(by).name
            self._cloud.submit(Approve(events=(self.name,), by=Requester(vm, Role.VM)))

    def cancel(self) -> None:
        """Take its operation back."""
        self._cloud.done(self._cloud.service.cancel(self.name, TEST))

    def postpone(self, not_before: datetime) -> None:
        """Give more notice."""
        body = bodies.Postpone(not_before=not_before)
        self._cloud.done(self._cloud.service.postpone(self.name, TEST, body))


class CloudFault(Handle):
    """A fault that is on; `name` is its id. Used with `with`, it is off after the block."""

    def clear(self) -> None:
        """Switch it off. A second time does nothing."""
        faults = self._cloud.core.worker.faults
        on = self._cloud.inside(lambda: {one.fault.id for one in faults})
        if self.name in on:
            self._cloud.inside(lambda: faults.clear(self.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


class CloudVm(Handle):
    """A VM. What is done to it after notice returns the event that announces it."""

    def restart(self, *, not_before: datetime | None = None) -> CloudEvent:
        """Reboot it, after notice."""
        return self._announced("restart", not_before)

    def redeploy(self, *, not_before: datetime | None = None) -> CloudEvent:
        """Move it to another node, after notice."""
        return self._announced("redeploy", not_before)

    def evict(self) -> CloudEvent:
        """Take a Spot VM away, after notice."""
        return self._announced("evict")

    def delete(self) -> CloudEvent | None:
        """Delete it: after notice where its scale set has terminate notification, else at once."""
        return next(iter(self._do("delete")), None)

    def stop(self) -> None:
        """Stop it; it keeps its place."""
        self._do("stop")

    def start(self) -> None:
        """Start it again."""
        self._do("start")

    def deallocate(self) -> None:
        """Stop it, and give up its place."""
        self._do("deallocate")

    def _announced(self, what: str, not_before: datetime | None = None) -> CloudEvent:
        row = self._cloud.fleet.vms[self.name]
        if row.power is Power.RUNNING and not self._cloud.fleet.scopes[row.scope].enabled:
            raise UsageError(
                f"No VM of {row.scope} has asked for its document within a day, so nobody would "
                f'be told. Let a client ask, or call cloud.listen("{self.name}") first.'
            )
        events = self._do(what, not_before)
        if not events:
            now = self.look()
            doing = f" and is being changed ({now.impact})" if now.impact else ""
            raise AssertionError(
                f"No event announces the {what} of {self.name}: it is {now.power}{doing}."
            )
        return events[0]

    def _do(self, what: str, not_before: datetime | None = None) -> list[CloudEvent]:
        body = bodies.OnVm(not_before=not_before)
        return self._events(self._cloud.service.on_vms(what, (self.name,), TEST, body))

    @property
    def url(self) -> str:
        """Where the metadata service is for it."""
        return self._cloud.url_for(self.name)

    def document(self, api_version: str = "2020-07-01") -> dict[str, Any]:
        """What it would read now."""
        return self._cloud.document(self.name, api_version)

    def look(self) -> shapes.Vm:
        """All that the control plane shows of it now."""
        return self._cloud.inside(lambda: self._cloud.service.vm(self.name))

    @property
    def machine(self) -> Machine | None:
        """The simulated machine: its boot id, power, node, and whether it is paused."""
        return self._cloud.inside(lambda: self._cloud.core.driver.machine(self.name))


class CloudNode(Handle):
    """A node. What is done to it returns the events that announce it, one for each scope."""

    def maintain(
        self,
        *,
        impact: Impact = "freeze",
        duration_seconds: int | None = None,
        not_before: datetime | None = None,
        force: bool = False,
    ) -> list[CloudEvent]:
        """Freeze its VMs for a while, or reboot it (impact="reboot"), after notice."""
        if impact not in get_args(Impact):
            raise UsageError(f"impact is {impact!r}; give freeze or reboot")
        body = bodies.Maintain(
            impact=impact,
            duration_seconds=duration_seconds,
            not_before=not_before,
            force=force,
        )
        return self._on(impact, body)

    def migrate(self, *, force: bool = False) -> list[CloudEvent]:
        """Live-migrate its VMs, after notice."""
        return self._on("migrate", bodies.OnNode(force=force))

    def repair(self, *, force: bool = False) -> list[CloudEvent]:
        """Repair it: its VMs are rebooted, after notice."""
        return self._on("repair", bodies.OnNode(force=force))

    def evacuate(self, *, force: bool = False) -> list[CloudEvent]:
        """Live-migrate its VMs away, after notice, and put none on it."""
        return self._on("evacuate", bodies.OnNode(force=force))

    def _on(self, what: str, body: bodies.Maintain | bodies.OnNode) -> list[CloudEvent]:
        return self._events(self._cloud.service.on_node(what, self.name, TEST, body))

    def predict_failure(
        self, *, risk: Risk | str | None = None, not_before: datetime | None = None
    ) -> list[CloudEvent]:
        """It is expected to fail: its VMs are moved away before."""
        body = bodies.PredictFailure(
            risk=None if risk is None else Risk(risk), not_before=not_before
        )
        return self._events(self._cloud.service.predict_failure(self.name, TEST, body))

    def fail(self) -> list[CloudEvent]:
        """It has failed; its VMs are told that this has begun."""
        return self._events(self._cloud.service.fail_node(self.name, TEST))

    def cordon(self) -> None:
        """Put no VM on it."""
        self._cloud.done(self._cloud.service.cordon(self.name, TEST, cordoned=True))

    def uncordon(self) -> None:
        """Return it to service."""
        self._cloud.done(self._cloud.service.cordon(self.name, TEST, cordoned=False))

    def look(self) -> shapes.Node:
        """All that the control plane shows of it now."""
        return self._cloud.inside(lambda: self._cloud.service.node(self.name))


class CloudScaleSet(Handle):
    """A scale set."""

    def scale_in(self, count: int = 1) -> list[CloudEvent]:
        """Delete its newest instances, after notice where it has terminate notification."""
        body = bodies.ScaleIn(count=count)
        return self._events(self._cloud.service.scale_in(self.name, TEST, body))

    def set_terminate_notice(self, minutes: int | None) -> None:
        """Switch terminate notification on, or off with None."""
        body = bodies.ChangeScaleSet(terminate_notice_minutes=minutes)
        self._cloud.done(self._cloud.service.change_scale_set(self.name, body))


class CloudRollout(Handle):
    """A rollout; `name` is its id."""

    @classmethod
    def start(cls, cloud: "Cloud", nodes: Sequence[str], **wishes: Any) -> "CloudRollout":  # noqa: ANN401
        """Begin one."""
        body = bodies.StartRollout(nodes=list(nodes), **wishes)
        accepted = cloud.done(cloud.service.start_rollout(TEST, body))
        assert accepted.id is not None
        return cls(cloud, accepted.id)

    def look(self) -> shapes.Rollout:
        """All that the control plane shows of it now, with its nodes."""
        return self._cloud.inside(lambda: self._cloud.service.rollout(self.name))

    @property
    def status(self) -> RolloutStatus:
        """Whether it goes on."""
        return self.look().status

    def pause(self) -> None:
        """Begin no further node."""
        self._steer("pause")

    def resume(self) -> None:
        """Go on."""
        self._steer("resume")

    def cancel(self) -> None:
        """Begin no further node, and take back what is not started."""
        self._steer("cancel")

    def _steer(self, what: str) -> None:
        self._cloud.done(self._cloud.service.steer_rollout(what, self.name, TEST))
