"""A stage whose documents are served: the law in memory behind a real metadata endpoint."""

from datetime import datetime, timedelta
from typing import Any

from fairnotice.clock import Clock, SystemClock
from fairnotice.engine import AZURE, Decision, Refusal, Timing, decide, document
from fairnotice.engine.changes import Change, Removal
from fairnotice.engine.commands import Approve, Command, Heard, ReportServed, SeenBy
from fairnotice.engine.fleet import Fleet
from fairnotice.errors import Unavailable
from fairnotice.metadata.board import Board
from fairnotice.metadata.rate import DEFAULT, Rate
from fairnotice.metadata.respond import About
from fairnotice.metadata.worker import Limits, Worker
from fairnotice.model import Requester, Scope, Vm
from fairnotice.testing.stage import Stage
from fairnotice.words import Role

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
LOCATION = "local"


class StageDate:
    """The clock of an endpoint before a stage: Date is the stage's, and real time passes.

    NotBefore and Date are then on one clock, while the rate and the waits of real clients go by
    the machine's: on a stage whose time stands still nobody would be answered a second time.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def wall(self) -> datetime:
        """The instant on the stage."""
        return self._stage.clock.wall()

    monotonic = staticmethod(SystemClock.monotonic)
    sleep = staticmethod(SystemClock.sleep)


class LiveStage(Stage):
    """Every commit is on the board before anybody is answered."""

    def __init__(self, timing: Timing | str = AZURE) -> None:
        super().__init__(timing)
        self.board = Board()
        # The clock of the endpoint, which may be another one than the law's.
        self.endpoint_clock: Clock = StageDate(self)
        self._workers: list[Worker] = []
        # A test may take the control plane away.
        self.away = False

    def ask(self, command: Command) -> Decision | Refusal:
        """Carry a command out, and publish what it changed."""
        decision = super().ask(command)
        if isinstance(decision, Decision):
            publish(self.board, self.fleet, decision.changes)
        return decision

    def worker(
        self,
        clock: Clock | None = None,
        *,
        rate_limit: Rate | None = DEFAULT,
        limits: Limits | None = None,
        first_answer_delay_seconds: float = 0.0,
    ) -> Worker:
        """An endpoint process for this stage; with the stage's own clock all its time is that."""
        self.endpoint_clock = clock or self.endpoint_clock
        worker = Worker(
            self.board,
            self.endpoint_clock,
            self._approve,
            self._enable,
            lambda vm: describe(self.fleet, vm),
            rate_limit=rate_limit,
            limits=limits,
            first_answer_delay_seconds=first_answer_delay_seconds,
        )
        self._workers.append(worker)
        return worker

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant, and show it in Date."""
        super().advance_to(instant)
        for worker in self._workers:
            worker.renew_date(worker.monotonic())

    async def _enable(self, scope: str) -> None:
        self._must_be_there()
        self.tell(ReportServed(heard=(Heard(scope, self.clock.wall()),)))

    async def _approve(self, vm: str, events: tuple[str, ...]) -> tuple[str, ...]:
        self._must_be_there()
        by = Requester(vm, Role.VM)
        if isinstance(self.ask(Approve(events=events, by=by)), Refusal):
            each = {event: Approve(events=(event,), by=by) for event in events}
            answers = {event: decide(self.fleet, one, self.now) for event, one in each.items()}
            return tuple(event for event in answers if isinstance(answers[event], Refusal))
        self.tick()
        return ()

    def _must_be_there(self) -> None:
        if self.away:
            raise Unavailable("the control plane is away")

    def report_served(self, heard_every_seconds: float = 3600.0) -> None:
        """Hand on what the endpoint has gathered, as a batch."""
        seen = self.board.take_first_seen()
        heard = self.board.take_heard(heard_every_seconds)
        if self.away:
            self.board.give_back(seen, heard)
        elif seen or heard:
            now, monotonic = self.clock.wall(), self.endpoint_clock.monotonic()
            asked = (now - timedelta(seconds=monotonic - asked_at) for _, asked_at in heard)
            report = ReportServed(
                heard=tuple(Heard(scope, at) for (scope, _), at in zip(heard, asked, strict=True)),
                seen=tuple(SeenBy(*first) for first in seen),
            )
            self.tell(report)


def publish(board: Board, fleet: Fleet, changes: tuple[Change[Any], ...]) -> None:
    """Put on the board what these changes, already applied, have made different."""
    scopes: dict[str, None] = {}
    vms: dict[str, None] = {}
    for change in changes:
        row = change.row
        if isinstance(row, Scope):
            if isinstance(change, Removal):
                board.remove_page(row.name)
            else:
                scopes[row.name] = None
        elif isinstance(row, Vm):
            vms[row.name] = None
    for name in scopes:
        if name in fleet.scopes:
            board.publish(fleet.scopes[name], document(fleet, name))
    for name in vms:
        vm = fleet.vms.get(name)
        if vm is None:
            board.remove_caller(name)
        else:
            board.put_caller(name, vm.scope, vm.addresses)


def describe(fleet: Fleet, name: str) -> About | None:
    """What the instance document of a VM is made of."""
    vm = fleet.vms.get(name)
    if vm is None:
        return None
    node = None if vm.node is None else fleet.nodes[vm.node]
    return About(vm, node, fleet.scopes[vm.scope], SUBSCRIPTION, LOCATION)
