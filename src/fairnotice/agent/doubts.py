"""What is allowed in agent.toml, and hardly meant: a sentence each, for `fairnotice agent check`.

Nothing is run, and nothing changed; what could not be at all is refused elsewhere, when it is read.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from fairnotice.agent.config import Config, HandlerTable
from fairnotice.agent.rules import SHORT_FREEZE_SECONDS, Acknowledge, Leader, Match, WhenShort
from fairnotice.agent.tables import Table
from fairnotice.client.document import Event
from fairnotice.words import EventSource, EventStatus, EventType

# The keys of built-in kinds that are command lines.
_COMMANDS = {
    "checkpoint": ("save", "restore"),
    "command": ("prepare", "recover"),
    "failover": ("command", "check", "back"),
    "shutdown": ("command",),
}
_FILES = {"mail": ("password_file", "ca_file"), "webhook": ("url_file", "secret_file", "ca_file")}
_GATE_WAITS_SECONDS = 10.0
# What Azure gives at least, where that is too little for many a handler.
_PREEMPT_SECONDS = 30.0
_VM, _OTHER = "this", "other"


def doubts(config: Config, *, runs: bool) -> list[str]:
    """All there are. `runs`: an agent with this configuration runs here, and holds its ports."""
    found = [*_of_rules(config), *_of_use(config), *_of_time(config)]
    for name, table in config.handlers.items():
        found += [f"[handler.{name}]: {sentence}" for sentence in _of_handler(table)]
    command = (config.rendezvous or {}).get("command")
    found += [f"[rendezvous]: {one}" for one in _of_command("command", command, "")]
    if not runs:
        found += [*_of_ports(config), *_of_state(config.state)]
    return found


# ---- Rules ----


def _of_rules(config: Config) -> Iterator[str]:
    if not config.rules:
        yield "there is no [[rule]]: whatever comes is logged, and left to itself."
    for number, rule in enumerate(config.rules):
        course = rule.course
        if not _reached(rule.match, [one.match for one in config.rules[:number]]):
            yield f"{course.called} is for nothing: those before it take all that would fit it."
        if not course.prepare and course.acknowledge is Acknowledge.NEVER:
            yield f"{course.called} prepares nothing and acknowledges nothing: it only logs."


def _reached(match: Match, before: list[Match]) -> bool:
    """Whether there is an event for this rule that none before it is for."""
    own = replace(match, description=None)
    # A pattern before it takes everything only if it is the same one.
    taking = [
        replace(one, description=None)
        for one in before
        if one.description is None or one.description == match.description
    ]
    return any(
        own.fits(event, _VM) and not any(one.fits(event, _VM) for one in taking)
        for event in _events([match, *before])
    )


def _events(matches: list[Match]) -> Iterator[Event]:
    """Events of every sort that these rules can tell apart."""
    bounds = [one.duration_at_least for one in matches] + [one.duration_at_most for one in matches]
    near = {SHORT_FREEZE_SECONDS, *(one for one in bounds if one is not None)}
    lengths = {-1, *(max(0, one + by) for one in near for by in (-1, 0, 1))}
    types, sources = (*EventType, "?"), (*EventSource, "")
    for kind, source, seconds, vm in product(types, sources, sorted(lengths), (_VM, _OTHER)):
        yield Event(
            id="",
            type=kind,
            status=EventStatus.SCHEDULED,
            resources=(vm,),
            not_before=None,
            source=source,
            duration_seconds=seconds,
        )


def _of_use(config: Config) -> Iterator[str]:
    courses = [rule.course for rule in config.rules]
    used = {name for course in courses for name in (*course.prepare, *course.recover)}
    for name in config.handlers:
        if name not in used:
            yield f"[handler.{name}]: no rule names it."
    if config.rendezvous is not None and not any(
        course.leader is Leader.RENDEZVOUS for course in courses
    ):
        yield "[rendezvous]: no rule says leader = 'rendezvous'."


def _of_time(config: Config) -> Iterator[str]:
    """Handlers that would be skipped where the notice is as short as it can be."""
    there_is = max(0.0, _PREEMPT_SECONDS - config.margin_seconds)
    for rule in config.rules:
        types, course = rule.match.types, rule.course
        if (types and EventType.PREEMPT not in types) or course.when_short is WhenShort.RUN:
            continue
        if course.acknowledge is Acknowledge.AT_ONCE:
            continue
        for name in course.prepare:
            seconds = config.limits.get(name, 0.0)
            if seconds > there_is:
                yield (
                    f"{course.called}: a Preempt gives {_PREEMPT_SECONDS:g} s, {there_is:g} s "
                    f"without the margin, and {name} takes {seconds:g} s: it would be skipped. "
                    "See when_short."
                )


# ---- Handlers ----


def _of_handler(table: HandlerTable) -> Iterator[str]:
    settings = table.settings
    directory = str(settings.get("directory", ""))
    for key in _COMMANDS.get(table.kind, ()):
        yield from _of_command(key, settings.get(key), directory)
    for key in _FILES.get(table.kind, ()):
        path = settings.get(key)
        if path is not None and not os.access(str(path), os.R_OK):
            yield f"{key} is {path}, which cannot be read here."
    if directory and not Path(directory).is_dir():
        yield f"directory is {directory}, which is no folder here."
    if table.kind == "systemd" and shutil.which("systemctl") is None:
        yield "there is no program systemctl here."
    waits = settings.get("wait_seconds", _GATE_WAITS_SECONDS)
    short = table.seconds is not None and isinstance(waits, int | float) and waits > table.seconds
    if table.kind == "health-gate" and short:
        yield f"wait_seconds is {waits:g} and seconds {table.seconds:g}: it can never be done."


def _of_command(key: str, command: object, directory: str) -> Iterator[str]:
    if not isinstance(command, list) or not command:
        return
    program = str(command[0])
    relative = os.sep in program and not Path(program).is_absolute()
    if shutil.which(str(Path(directory, program)) if relative and directory else program):
        return
    if len(command) == 1 and " " in program:
        words = ", ".join(repr(word) for word in program.split())
        yield f"{key} is one word, {program!r}, which is no program: did you mean [{words}]?"
    else:
        yield f"{key}: there is no program {program!r} here that can be run."


# ---- What the agent itself needs ----


def _of_ports(config: Config) -> Iterator[str]:
    wanted = {"metrics": config.metrics} if config.metrics else {}
    for name, table in config.handlers.items():
        if table.kind == "health-gate":
            wanted[f"[handler.{name}]: listen"] = Table("", table.settings).address("listen")
    for key, (host, port) in wanted.items():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            yield f"{key}: nobody can listen at {host}:{port} now: {error.strerror}."


def _of_state(state: Path) -> Iterator[str]:
    there = next((one for one in (state, *state.parents) if one.exists()), state)
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        yield f"state is {state}, where you cannot write: {error.strerror}."
