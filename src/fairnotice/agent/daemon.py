"""The agent: watches the document, and has a plan carried out for each event that a rule is for.

One thread watches, one carries out each plan; the thread that was started waits to be told to end.
Whoever ends it, politely or not, leaves prepared what is prepared: the journal knows.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from functools import partial

from fairnotice.agent import by_hand, rendezvous, status, workshop
from fairnotice.agent.config import Config, named
from fairnotice.agent.handlers import registry
from fairnotice.agent.handlers.handler import Handler
from fairnotice.agent.journal import Journal
from fairnotice.agent.metrics import Numbers, Page
from fairnotice.agent.one_per_vm import Place
from fairnotice.agent.plan import Limits, withheld
from fairnotice.agent.records import Line, LineKind, Outcome, Record
from fairnotice.agent.runner import ENDING_SECONDS, Runner
from fairnotice.agent.tables import every
from fairnotice.agent.workshop import Workshop, log
from fairnotice.client.document import Document
from fairnotice.client.steps import Missed
from fairnotice.client.sync import ScheduledEvents
from fairnotice.clock import Clock
from fairnotice.errors import ClientError, RendezvousFailed, Unavailable
from fairnotice.systemd import tell_systemd

AGAIN_SECONDS = 1.0


def made_handlers(config: Config) -> dict[str, Handler]:
    """Every handler of a configuration; UsageError, a line for each, where some cannot be."""
    makes = {
        name: partial(registry.make, one.kind, one.settings, name, config.state)
        for name, one in config.handlers.items()
    }
    with named(config.file):
        return every(makes)


def vm_name(client: ScheduledEvents) -> str:
    """What this VM is called in Resources. Raises ClientError."""
    compute = client.instance().get("compute")
    name = compute.get("name") if isinstance(compute, dict) else None
    if not isinstance(name, str) or not name:
        raise ClientError("The instance document has no name of this VM: give vm in agent.toml.")
    return name


def _place(config: Config) -> rendezvous.Rendezvous | None:
    place = rendezvous.make(config.rendezvous) if config.rendezvous is not None else None
    try:
        rendezvous.look(place)
    except RendezvousFailed as error:
        # It may be mounted later; meanwhile a VM that prepares is better than one that does not.
        log.error("%s", error)
    return place


def other_name(config: Config, name: str) -> str:
    """A sentence where the configuration has another name than the service; else nothing."""
    if config.vm is None or config.vm.casefold() == name.casefold():
        return ""
    return (
        f"vm is {config.vm!r} in agent.toml, and the metadata service calls this VM {name!r}: "
        f"events that name {name} are taken for those of another."
    )


def missing_handlers(live: Iterable[Record], config: Config) -> list[str]:
    """A sentence for each plan with a handler that the configuration has no more."""
    found = []
    for record in live:
        names = [name for name in record.held if name not in config.handlers]
        if names:
            found.append(
                f"event {record.event.id} is prepared by {', '.join(names)}, which agent.toml has "
                "no more: nobody can recover that until [handler.…] is there again by that name."
            )
    return found


class Agent:
    """One agent, in one VM. Made it holds the journal; `run` it until `stop` is set."""

    def __init__(self, config: Config, client: ScheduledEvents, clock: Clock) -> None:
        self.stop = threading.Event()
        self._config = config
        self._client = client
        self._clock = clock
        self._vm = config.vm or ""
        self._numbers = Numbers()
        self._runners: dict[str, Runner] = {}
        self._trouble = ""
        # Set while there are events that no plan could be written down for.
        self._behind = threading.Event()
        self._heard_at: float | None = None
        self._failure: BaseException | None = None
        self._ready = status.ReadyFile(config.ready_file)
        self._status = status.StatusFile(config.state)
        handlers = made_handlers(config)
        place = _place(config)
        with ExitStack() as stack:
            journal = Journal(config.state, clock)
            stack.callback(journal.close)
            self.shop = Workshop(
                journal,
                config.rules,
                handlers,
                Limits(config.margin_seconds, config.limits, config.handlers),
                clock=clock,
                told=self._told,
            )
            self.shop.rendezvous = place
            self.shop.takeover_seconds = config.takeover_seconds
            self._open(handlers, stack)
            self._stack = stack.pop_all()

    def _open(self, handlers: Mapping[str, Handler], stack: ExitStack) -> None:
        """Let every handler begin, as it was left."""
        for name, handler in handlers.items():
            handler.open(self.shop.is_prepared(name))
            stack.callback(handler.close)
        if self._config.metrics is not None:
            stack.callback(Page(self._config.metrics, self._page).close)

    # ---- Running ----

    def run(self) -> None:
        """Watch until `stop` is set; then end what runs, and leave the rest as it is."""
        watcher = threading.Thread(target=self._watch_safely, name="watch", daemon=True)
        watcher.start()
        try:
            self.stop.wait()
        finally:
            self._end()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        tell_systemd("STOPPING=1")
        shop = self.shop
        with shop.changed:
            held = self._holding()
            log.info("ending%s", f"; it stays prepared: {', '.join(held)}" if held else "")
            shop.ending.set()
            for runner in self._runners.values():
                runner.stop()
            shop.wake()
        for runner in list(self._runners.values()):
            runner.join(ENDING_SECONDS + 1)
        self._client.close()
        self._ready.set(ready=False)
        self._tell_status("ended")
        self._stack.close()

    def _watch_safely(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # noqa: BLE001 - an agent that is blind must not live on
            self._failure = error
        self.stop.set()

    def _watch(self) -> None:
        self._find_name()
        for item in self._client.documents(self.stop, self._config.heartbeat_seconds):
            if isinstance(item, Missed):
                self._missed(item)
            else:
                self._look(item)

    def _find_name(self) -> None:
        """Ask the service how this VM is called, for as long as it takes."""
        while not self._vm and not self.stop.is_set():
            try:
                self._vm = vm_name(self._client)
            except ClientError as error:
                self._say_trouble(str(error))
                self.stop.wait(AGAIN_SECONDS)

    # ---- What the service says ----

    def _missed(self, missed: Missed) -> None:
        self._numbers.count("fairnotice_agent_misses_total")
        self._say_trouble(str(missed.error))

    def _say_trouble(self, sentence: str) -> None:
        """Once, for as long as it is the same."""
        if sentence != self._trouble:
            log.warning("%s; it is tried again", sentence.rstrip("."))
            self._trouble = sentence
            self._tell_status("watches")

    def _look(self, document: Document) -> None:
        self._numbers.count("fairnotice_agent_documents_total")
        first, self._heard_at = self._heard_at is None, self._clock.monotonic()
        if self._trouble:
            log.warning("the metadata service answers again")
            self._trouble = ""
        if first:
            # Before anything is begun: it is for good, and ends the agent where another acts.
            self._stack.enter_context(closing(Place(self._client.url)))
            log.info("watching %s as %s", self._client.url, self._vm)
            self._say_what_was_left()
        if not self._took_in(document) and not self._behind.is_set():
            self._behind.set()
            threading.Thread(target=self._catch_up, name="catch up", daemon=True).start()
        if first:
            tell_systemd("READY=1")
            # Whoever is slow to answer that holds up nothing.
            threading.Thread(target=self._doubt_name, name="name", daemon=True).start()
        self._tell_status("watches")

    def _say_what_was_left(self) -> None:
        """What an earlier life of the agent has not brought to an end."""
        for record in self.shop.live():
            steps = [one for one in record.steps.values() if one.outcome != Outcome.DONE]
            told = "".join(f"; {one.phase} {one.handler}: {one.outcome}" for one in steps)
            none = withheld(record, record.event) if not record.gone else ""
            log.log(
                logging.WARNING if steps else logging.INFO,
                "event %s: it is taken up where it was: %s%s%s",
                *(record.event.id, status.state(record), told),
                f"; no go-ahead ({none})" if none else "",
            )
        for sentence in missing_handlers(self.shop.live(), self._config):
            log.error("%s", sentence)

    def _doubt_name(self) -> None:
        """Say so where the service calls this VM by another name than the configuration does."""
        with suppress(ClientError):
            sentence = other_name(self._config, vm_name(self._client))
            if sentence:
                log.error("%s", sentence)

    def _catch_up(self) -> None:
        """Until there is a plan for all that is shown by then; documents are read meanwhile."""
        while not self.stop.wait(AGAIN_SECONDS):
            with self.shop.changed:
                document = self.shop.document
                if document is None or self._took_in(document):
                    self._behind.clear()
                    return

    def _took_in(self, document: Document) -> bool:
        """Whether every plan knows of the document; not so while the disk is full."""
        shop, all_met = self.shop, True
        with shop.changed:
            shop.document = document
            try:
                for name in by_hand.taken(self._config.state):
                    shop.recovered_by_hand(name)
                for event in document.events:
                    shop.meet(event, self._vm)
            except Unavailable as error:
                log.error("%s", error)
                all_met = False
            shop.forget_others()
            self._start_plans()
            for runner in self._runners.values():
                runner.look()
            shop.wake()
            self._say_ready()
        return all_met

    def _start_plans(self) -> None:
        """A thread for each event that is not over; with shop.changed held."""
        for name, runner in list(self._runners.items()):
            if not runner.is_alive():
                del self._runners[name]
        for record in self.shop.live():
            name = record.event.id
            if name not in self._runners:
                self._runners[name] = Runner(self.shop, self._client, name)
                self._runners[name].start()

    # ---- What the agent says ----

    def _told(self, line: Line) -> None:
        """A line of the journal; with shop.changed held."""
        if line["kind"] == workshop.WAITS:
            self._tell_status("watches")
            return
        record = self.shop.journal.records[str(line["event"])]
        level, sentence = workshop.said(line, record)
        if sentence:
            log.log(level, "%s", sentence)
        if line["kind"] == LineKind.ENDED:
            labels = {key: str(line[key]) for key in ("phase", "handler", "outcome")}
            self._numbers.count("fairnotice_agent_steps_total", **labels)
        elif line["kind"] == LineKind.ACKNOWLEDGED:
            how = str(line["how"]).partition(" ")[0].rstrip(":")
            self._numbers.count("fairnotice_agent_go_aheads_total", outcome=how)
        self._say_ready()

    def _holding(self) -> list[str]:
        return sorted({name for one in self.shop.live() for name in one.held})

    def _say_ready(self) -> None:
        self._ready.set(ready=self._heard_at is not None and not self._holding())

    def _tell_status(self, doing: str) -> None:
        with self.shop.changed:
            document = self.shop.document
            self._status.write(
                vm=self._vm,
                doing=doing,
                url=self._client.url if document is not None else self._config.url,
                incarnation=document.incarnation if document is not None else None,
                trouble=self._trouble or None,
                events={one.event.id: self._shown(one.event.id) for one in self.shop.live()},
            )

    def _shown(self, name: str) -> dict[str, str | None]:
        """What the journal does not say of an event: how it is shown, and what is waited for."""
        shown = self.shop.shown(name)
        return {"status": shown.status if shown else None, "waits": self.shop.waits.get(name)}

    def _page(self) -> str:
        with self.shop.changed:
            holding, plans = len(self._holding()), len(self.shop.live())
        ready = self._heard_at is not None and not holding
        gauges = {
            "fairnotice_agent_ready": float(ready),
            "fairnotice_agent_plans": float(plans),
            "fairnotice_agent_prepared_handlers": float(holding),
        }
        if self._heard_at is not None:
            age = self._clock.monotonic() - self._heard_at
            gauges["fairnotice_agent_last_answer_seconds"] = age
        return self._numbers.text(gauges)
