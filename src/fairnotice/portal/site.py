"""What pages are made from: a service that runs, where it is, and who looks."""

import shlex
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

from fairnotice.control import shapes
from fairnotice.control.running import Running
from fairnotice.control.service import Service
from fairnotice.engine import Fleet
from fairnotice.errors import Unavailable

NEWEST = "2020-07-01"
# Where a VM finds its metadata.
INSIDE_A_VM = "http://169.254.169.254"
# What stands for an event's id where there is none.
ANY_EVENT = "EVENT-ID"
# Where the command line asks unless it is told to ask elsewhere.
USUAL_CONTROL = "127.0.0.1:8600"


class Viewer(NamedTuple):
    """Who looks at a page: what it may offer him."""

    # Empty where nobody is asked who he is.
    name: str = ""
    may_operate: bool = True
    # Goes with all that is asked by cookie; empty where there is no session.
    csrf: str = ""


class Line(NamedTuple):
    """Something to copy into a terminal, and what it does."""

    what: str
    text: str


class Site:
    """A service, as its pages ask for it."""

    def __init__(self, run: Running) -> None:
        self._run = run

    @property
    def service(self) -> Service:
        """The use cases."""
        return self._run.service

    @property
    def fleet(self) -> Fleet:
        """The state as it was last committed."""
        return self.service.fleet

    def now(self) -> datetime:
        """This instant, as the law has it."""
        return self.service.conductor.now().wall

    @property
    def timing(self) -> str:
        """The name of the timing profile: with `dev`, minutes are seconds."""
        return self.service.conductor.timing.name

    @property
    def trouble(self) -> str:
        """Why nothing can be recorded at the moment; empty while all is well."""
        trouble = self.service.conductor.trouble
        return "" if trouble is None else str(trouble)

    def last_asked(self, vm: str) -> datetime | None:
        """When this VM last asked the endpoint of this process for its document."""
        worker = self._run.worker
        caller = None if worker is None else worker.board.callers.get(vm)
        now = self.service.conductor.now()
        if caller is None or caller.asked_at < 0:
            return None
        return now.wall - timedelta(seconds=now.monotonic - caller.asked_at)

    def faults(self) -> list[shapes.FaultOn]:
        """In which ways the endpoint misbehaves on purpose."""
        try:
            return self.service.faults_on()
        except Unavailable:
            return []

    @property
    def is_for_trying(self) -> bool:
        """Whether anybody here may pretend to be any VM: then nothing real is at stake."""
        return self._run.prefix_allowed

    # ---- Lines to copy ----

    def document_url(self, vm: str, api_version: str = NEWEST) -> str:
        """Where this VM reads its document."""
        return f"{self._metadata(vm)}/metadata/scheduledevents?api-version={api_version}"

    def lines(self, vm: str, api_version: str = NEWEST, event: str = ANY_EVENT) -> list[Line]:
        """What to type to be this VM, or to be asked as it; with the event that it may approve."""
        url = shlex.quote(self.document_url(vm, api_version))
        started = shlex.quote(f'{{"StartRequests": [{{"EventId": "{event}"}}]}}')
        endpoint = shlex.quote(self._metadata(vm))
        said = [
            Line("read the document", f"curl -s -H Metadata:true {url}"),
            Line("approve an event", f"curl -s -H Metadata:true {url} -d {started}"),
            Line(
                "run the agent as this VM",
                f"FAIRNOTICE_METADATA_URL={endpoint} fairnotice agent run",
            ),
        ]
        if self._run.prefix_allowed:
            command = f"fairnotice as {shlex.quote(vm)} -- COMMAND"
            said.append(Line("run any command as this VM", self._asked_here() + command))
        return said

    def _asked_here(self) -> str:
        """What makes the command line ask this very control plane."""
        control = str(self._run.control)
        return "" if control == USUAL_CONTROL else f"FAIRNOTICE_URL=http://{control} "

    def _metadata(self, vm: str) -> str:
        if self._run.worker is None:
            # Its node has an endpoint of its own.
            return INSIDE_A_VM
        prefix = f"/vm/{quote(vm, safe='')}" if self._run.prefix_allowed else ""
        return f"http://{self._run.metadata}{prefix}"
