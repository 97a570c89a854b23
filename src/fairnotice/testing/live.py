"""A stage whose documents are served: the law in memory behind a real metadata endpoint."""

from datetime import datetime

from fairnotice.clock import Clock
from fairnotice.control.publishing import describe, publish, shown_in
from fairnotice.control.serving import served_report, unknown_events
from fairnotice.engine import AZURE, Decision, Refusal, Timing
from fairnotice.engine.commands import Approve, Command, Heard, ReportServed
from fairnotice.errors import Unavailable
from fairnotice.metadata.board import Board
from fairnotice.metadata.rate import DEFAULT, Rate
from fairnotice.metadata.worker import Limits, Worker
from fairnotice.model import Moment, Requester
from fairnotice.testing.manual_clock import RealPace
from fairnotice.testing.stage import Stage
from fairnotice.words import Role


class LiveStage(Stage):
    """Every commit is on the board before anybody is answered."""

    def __init__(self, timing: Timing | str = AZURE) -> None:
        super().__init__(timing)
        self.board = Board()
        # The clock of the endpoint, which may be another one than the law's.
        self.endpoint_clock: Clock = RealPace(self.clock)
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
            documents=lambda scope: shown_in(self.fleet, scope),
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
        command = Approve(events=events, by=Requester(vm, Role.VM))
        if isinstance(self.ask(command), Refusal):
            return unknown_events(self.fleet, command, self.now)
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
            now = Moment(self.clock.wall(), self.endpoint_clock.monotonic())
            self.tell(served_report(seen, heard, now))
