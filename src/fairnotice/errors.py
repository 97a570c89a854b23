"""Every exception that a caller may meet, in one tree. Whose fault it was is in the type.

    FairnoticeError
    ├── LawError              our own fault: the engine was led where the law has no way
    │   ├── IllegalTransition   a change of status that is not a row of engine/transitions.py
    │   └── ClockWentBack       `now` was earlier than the last record (rule 25)
    ├── Unavailable           nobody's fault: it cannot be done now, and may be later
    │   ├── StoreInUse          another process holds the database
    │   ├── LeadLost            another control plane has taken over; this one's word is old
    │   ├── NotLeading          another control plane leads: it can be done there
    │   ├── JournalMoved        the journal holds what this process does not know of
    │   ├── CannotListen        an address that is taken, not there yet, or not for us
    │   ├── AgentRuns           in a VM: another agent is at work
    │   ├── JournalDamaged      in a VM: the agent's journal says less than was done
    │   ├── endpoint.passing.Refused  a control plane has said no to a node's endpoint
    │   └── RendezvousFailed    in a VM: where the VMs of an event meet cannot be reached
    ├── ClientError           in a VM: the metadata service did not give what it was asked for
    │   ├── NoEndpoint          none was found
    │   ├── BadAnswer           it answered something that is not what it should be
    │   ├── RequestRefused      it answered that the request is wrong (4xx)
    │   └── Away                it cannot answer now, or not at all: ask again
    ├── HandlerFailed         a handler of the agent could not prepare or recover this VM
    │   └── agent.handlers.processes.Ended  a command of it did not end by itself
    ├── cli.exits.CommandFailed  what was typed was not done; carries the exit code
    │   └── cli.remote.Unreachable  no control plane answers
    ├── testing.as_vm.namespace.NoNamespace  this system lets the caller make no network namespace
    └── UsageError            the caller's fault: what was given cannot mean anything
        ├── OutOfSight          something that whoever asks may not look at
        ├── UnknownName         a name that nobody has
        ├── NewerDatabase       a database that a later fairnotice has written
        ├── testing.as_vm.run_as.CannotRun  a command that is not there, or is no program
        └── BadBody             what a client sent is not what the wire asks for

A command that the law forbids is no exception: `decide` returns a Refusal for it.

These stand outside the tree, because nobody is meant to catch them as fairnotice's:

    Exception
    ├── engine.refusal.Refused     carries that Refusal up to `decide`, and never leaves it
    ├── agent.handlers.patience.Again  a try of a handler failed; HandlerFailed in the end
    └── testing.conform.watch.Interrupted  nobody wants to know any more; never leaves `conform`
    AssertionError
    ├── testing.clouds.cloud.CloudRefused  a test has asked for what the law forbids
    ├── testing.conform.scene.NotSurvived  a client fell; never leaves `conform`
    └── testing.witness.LawBroken  a test has failed: what is tested broke the law
"""


class FairnoticeError(Exception):
    """Whatever fairnotice raises on purpose."""


class LawError(FairnoticeError):
    """The engine was led where the law has no way: a bug, never bad input."""


class IllegalTransition(LawError):
    """A status was asked to change in a way that the table does not hold."""


class ClockWentBack(LawError):
    """The law was given a `now` before its last record, without a restart in between."""


class Unavailable(FairnoticeError):
    """It cannot be done now; the same call may succeed later."""


class StoreInUse(Unavailable):
    """Another process holds the database, and only one may lead."""


class LeadLost(Unavailable):
    """A later epoch has begun: nothing that this process decides counts any more (rule 10)."""


class NotLeading(Unavailable):
    """This control plane follows; `leader` is where the one that leads is reached, if one does."""

    def __init__(self, sentence: str, leader: str | None = None) -> None:
        super().__init__(sentence)
        self.leader = leader


class JournalMoved(Unavailable):
    """The journal goes on beyond what this process knows: it has to load the state anew."""


class CannotListen(Unavailable):
    """An address cannot be listened on; `what` is for what: control, metadata, metrics."""

    def __init__(self, sentence: str, what: str, *, taken: bool = False, lasts: bool) -> None:
        super().__init__(sentence)
        self.what = what
        # Another process has it.
        self.taken = taken
        # Another try comes to the same: it is not allowed.
        self.lasts = lasts


class AgentRuns(Unavailable):
    """Another agent runs in this VM, and one is enough."""


class JournalDamaged(Unavailable):
    """The agent's journal is damaged, and not by a crash: somebody has to look what is prepared."""


class RendezvousFailed(Unavailable):
    """The place where the VMs of an event say that they are ready cannot be reached."""


class ClientError(FairnoticeError):
    """The metadata service did not give a VM what it was asked for."""


class NoEndpoint(ClientError):
    """No metadata service was found; the sentence says where it was looked for."""


class BadAnswer(ClientError):
    """What was answered is no document, or no HTTP."""


class RequestRefused(ClientError):
    """The service says that the request is wrong; asking the same again seldom helps."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Away(ClientError):
    """The service cannot answer now (410, 429, 5xx), or the connection failed: ask again."""

    def __init__(
        self,
        sentence: str,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(sentence)
        # None where there was no answer at all.
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class HandlerFailed(FairnoticeError):
    """A handler of the agent could not do its work; the sentence says why."""


class UsageError(FairnoticeError):
    """The caller gave something that cannot mean anything."""


class OutOfSight(UsageError):
    """Whoever asks may not look at something: so nothing can be said of it."""


class UnknownName(UsageError):
    """Nobody has this name; `nearest` are those that may have been meant."""

    def __init__(self, sentence: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.nearest = nearest


class NewerDatabase(UsageError):
    """The database was written by a later fairnotice than this one."""


class BadBody(UsageError):
    """What a client sent is not what the wire asks for; the message goes into the 400."""
