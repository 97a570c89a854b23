"""The stage: what it checks for whoever writes a script on it, and what it says then."""

from dataclasses import replace
from inspect import signature

import pytest

from fairnotice.engine import AZURE, DEV, Accepted, Decision, Forecast
from fairnotice.engine.commands import (
    ApplyFleet,
    Approve,
    Cordon,
    Heard,
    ReportServed,
    Restart,
    StartRollout,
)
from fairnotice.engine.specs import FleetSpec, NodeSpec, SetSpec, VmSpec
from fairnotice.errors import UnknownName, UsageError
from fairnotice.model import Requester
from fairnotice.testing.stage import Stage
from fairnotice.words import OperationKind, Role

USER = Requester("ada", Role.USER)
OPERATOR = Requester("olga", Role.OPERATOR)
NODES = (NodeSpec("node-0"), NodeSpec("node-1", 1))


def stage_with(*vms: str) -> Stage:
    """Standalone VMs of these names on the first of two nodes."""
    stage = Stage()
    specs = tuple(VmSpec(vm, "node-0") for vm in vms)
    stage.tell(ApplyFleet(spec=FleetSpec(nodes=NODES, vms=specs)))
    return stage


def rollout(*, nodes: tuple[str, ...] = ("node-0", "node-1"), dry_run: bool = False):
    """A host update of these nodes."""
    kind = OperationKind.HOST_UPDATE
    return StartRollout(id="1", by=OPERATOR, nodes=nodes, kind=kind, dry_run=dry_run)


# ---- Names ----


def test_a_bare_vm_name_is_answered_with_its_scope():
    """Nobody has the scope `db`: the error names `vm:db`, and what else there is."""
    stage = stage_with("ab", "db", "web")

    with pytest.raises(UnknownName) as caught:
        stage.document("db")

    assert str(caught.value) == "There is no scope db; there are vm:db, vm:ab, vm:web"


def test_a_vm_of_a_set_is_answered_with_its_set():
    """The scope of web-0 is its availability set, which has another name altogether."""
    stage = Stage()
    vms = (VmSpec("db"), VmSpec("web-0", availability_set="web"))
    spec = FleetSpec(nodes=NODES, availability_sets=(SetSpec("web"),), vms=vms)
    stage.tell(ApplyFleet(spec=spec))

    with pytest.raises(UnknownName, match=r"there are availability-set:web, vm:db$"):
        stage.document("web-0")
    with pytest.raises(UnknownName, match=r"there are availability-set:web, vm:db$"):
        stage.listen("web")


def test_a_mistyped_scope_is_answered_with_the_nearest():
    """Of many scopes the three most alike are named, and that there are more."""
    stage = stage_with(*(f"vm-{number}" for number in range(9)), "storage")

    with pytest.raises(UnknownName, match=r"there are vm:storage, .*, .*, \.\.\.$"):
        stage.listen("vm:storrage")


@pytest.mark.parametrize(
    ("vms", "said"),
    [((), "There is no scope db; there is none yet: apply a fleet."), (("a",), "there is vm:a")],
)
def test_few_scopes_are_counted(vms, said):
    """Where there is no scope, or only one, the sentence is still one."""
    with pytest.raises(UnknownName, match=f"{said}$"):
        stage_with(*vms).document("db")


def test_listening_enables_a_scope():
    """Rule 8: who listens is told; a name that nobody has enables nobody, not even the others."""
    stage = stage_with("db", "web")

    with pytest.raises(UnknownName):
        stage.listen("vm:db", "vm:wbe")
    assert not stage.fleet.scopes["vm:db"].enabled

    stage.listen("vm:db")
    assert stage.fleet.scopes["vm:db"].enabled
    assert not stage.fleet.scopes["vm:web"].enabled


def test_an_endpoint_may_report_a_scope_that_is_gone():
    """The last VM may go while its endpoint's report is under way: that is no error."""
    stage = stage_with("db")

    stage.tell(ReportServed(heard=(Heard("vm:gone", stage.clock.wall()),)))

    assert stage.decisions[-1].changes == ()


# ---- Asking ----


def test_tell_ticks_and_ask_does_not():
    """A rollout is looked at in the tick after it was accepted."""
    asked, told = stage_with("db"), stage_with("db")

    assert isinstance(asked.ask(rollout()), Decision)
    told.tell(rollout())

    assert not asked.fleet.operations
    assert told.fleet.operations
    asked.tick()
    assert asked.fleet.operations.keys() == told.fleet.operations.keys()


def test_a_dry_run_is_forecast():
    """Asked by `forecast` a rollout is told in advance, dry run or not, and nothing happens."""
    stage = stage_with("db")

    forecast = stage.forecast(rollout())

    assert isinstance(forecast, Forecast)
    assert [node.node for node in forecast.order] == ["node-0", "node-1"]
    assert forecast == stage.forecast(rollout(dry_run=True))
    assert not stage.fleet.rollouts


def test_a_forecast_may_be_refused_like_any_command():
    """The refusal is in the error."""
    with pytest.raises(AssertionError, match=r"refused: .*node-9"):
        stage_with("db").forecast(rollout(nodes=("node-9",)))


def test_a_dry_run_that_is_told_says_what_to_use():
    """The error names `forecast`."""
    with pytest.raises(AssertionError, match=r"use stage\.forecast"):
        stage_with("db").tell(rollout(dry_run=True))


def test_the_last_command_is_known():
    """Whoever looks for the cause of a crash finds what was asked, ticks included."""
    stage = stage_with("db")
    cordon = Cordon(node="node-0")

    stage.ask(cordon)

    assert stage.last_command is cordon


def test_the_story_of_the_docstring():
    """Fleet, listen, tell, approve, report: the event comes, starts and is gone."""
    stage = stage_with("db")
    stage.listen("vm:db")
    assert isinstance(stage.tell(Restart(id="1", by=USER, vms=("db",))), Accepted)
    (event,) = stage.document("vm:db").events
    stage.advance(minutes=4)
    stage.tell(Approve(events=(event.id,), by=Requester("db", Role.VM)))
    (key,) = stage.under_way

    stage.report(key)

    assert stage.document("vm:db").events == ()


@pytest.mark.parametrize("name", ["under_way", "asked", "fleet", "clock", "decisions"])
def test_the_docstring_names_what_there_is_to_look_at(name):
    """Every attribute that a script needs is named, and is there."""
    assert f"`{name}`" in (Stage.__doc__ or "")
    assert hasattr(Stage(), name)


# ---- Profiles and time ----


def test_a_profile_may_be_named():
    """`dev` is the profile of that name; a Timing of one's own is taken as it is."""
    own = replace(AZURE, settle_seconds=7)

    assert Stage("dev").fleet.timing is DEV
    assert Stage().fleet.timing is AZURE
    assert Stage(own).fleet.timing is own


@pytest.mark.parametrize("timing", ["DEV", "", 15])
def test_a_profile_that_nobody_has_is_refused_at_once(timing):
    """The error names those that there are."""
    with pytest.raises(UsageError, match="there are azure, dev"):
        Stage(timing)


def test_a_timing_is_shown_in_one_word():
    """help(Stage) stays readable: the signature names the profile and does not spell it out."""
    assert repr(AZURE) == "<Timing azure>"
    assert repr(DEV) == "<Timing dev>"
    assert len(str(signature(Stage))) < 250


def test_a_timing_that_was_changed_says_where():
    """Two timings that differ are not shown alike."""
    changed = replace(DEV, settle_seconds=7, failure_budget=2)

    assert repr(changed) == "<Timing dev, changed: settle_seconds, failure_budget>"
    assert repr(replace(changed, name="night")) == "<Timing night>"


def test_time_does_not_pass_backwards():
    """A negative advance is refused with the seconds, and nothing has changed."""
    stage = stage_with("db")
    before = stage.now

    with pytest.raises(UsageError, match=r"\(-300 s\)"):
        stage.advance(minutes=-5)
    with pytest.raises(UsageError, match=r"\(-1 s\)"):
        stage.advance_to(
            before.wall.replace(year=2025, month=12, day=31, hour=23, minute=59, second=59)
        )

    assert stage.now == before
