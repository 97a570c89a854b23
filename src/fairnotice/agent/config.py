"""`agent.toml`, read and checked: every sentence names the file, the table and the key."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

from fairnotice.agent import leader
from fairnotice.agent.rules import (
    RECOVER_TRIES,
    Acknowledge,
    Course,
    Leader,
    Match,
    OnFailure,
    Reach,
    Rule,
    WhenShort,
)
from fairnotice.agent.tables import TOP_KEYS, Table, every, nearest
from fairnotice.errors import UsageError
from fairnotice.words import EventSource, EventType

MARGIN_SECONDS = 5.0
HEARTBEAT_SECONDS = 10.0
FILE = "agent.toml"
SYSTEM_STATE = Path("/var/lib/fairnotice")
# Their recover says how something has to be. Said twice, it is no other than said once.
REPEATABLE = ("haproxy", "health-gate", "systemd")
TELLERS = ("log", "mail", "webhook")
GATES = ("health-gate",)
_DURATION_MAX = 86_400
_TRIES_MAX = 100
TABLES = ("handler", "rendezvous", "rule")

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class HandlerTable:
    """One `[handler.NAME]`; what its kind takes is checked when it is made."""

    kind: str
    settings: Mapping[str, object]
    # The most that it takes; None where it does not say.
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """All that an agent is told."""

    # Where the journal is.
    state: Path
    # None: asked from the metadata service.
    vm: str | None = None
    # None: it is found.
    url: str | None = None
    margin_seconds: float = MARGIN_SECONDS
    # So often at least the service is asked, also where it holds its answer.
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    metrics: tuple[str, int] | None = None
    ready_file: Path | None = None
    rules: tuple[Rule, ...] = ()
    handlers: Mapping[str, HandlerTable] = field(default_factory=dict)
    rendezvous: Mapping[str, object] | None = None
    takeover_seconds: float = leader.TAKEOVER_SECONDS
    # Where it was read; for sentences.
    file: Path | None = None

    @property
    def limits(self) -> dict[str, float]:
        """The most seconds of those handlers that say so."""
        named = self.handlers.items()
        return {name: one.seconds for name, one in named if one.seconds is not None}


# ---- Where things are ----


def default_state() -> Path:
    """Where the journal is: systemd's folder, the system's, or the user's own."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.partition(":")[0])
    if os.name == "nt":
        return Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData")) / "fairnotice"
    if os.geteuid() == 0:
        return SYSTEM_STATE
    own = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    # Not the folder of `fairnotice up`, which people remove to begin all over.
    return Path(own) / "fairnotice-agent"


def places() -> tuple[Path, ...]:
    """Where the file is looked for, in this order."""
    if os.name == "nt":
        return (Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData")) / "fairnotice" / FILE,)
    own = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(own) / "fairnotice" / FILE, Path("/etc/fairnotice") / FILE


def find() -> Path:
    """The file that is there; UsageError where none is."""
    for path in places():
        if path.is_file():
            return path
    looked = " nor ".join(map(str, places()))
    raise UsageError(f"There is no configuration: neither {looked} is there. Give --config FILE.")


# ---- Reading ----


def load(path: Path) -> Config:
    """The configuration in this file; UsageError where it cannot be."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}.") from error
    with named(path):
        return replace(read(text), file=path)


@contextmanager
def named(file: Path | None) -> Iterator[None]:
    """Whatever is refused inside has the name of the file in front, each line of it."""
    try:
        yield
    except UsageError as error:
        if file is None:
            raise
        lines = str(error).splitlines()
        raise UsageError("\n".join(f"{file}: {line}" for line in lines)) from error


def read(text: str) -> Config:
    """The configuration that this text is; UsageError where it cannot be."""
    try:
        whole = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"this is no TOML: {error}.") from error
    for key in whole:
        if key not in (*TOP_KEYS, *TABLES):
            raise UsageError(f"there is no key {key}. {nearest(key, (*TOP_KEYS, *TABLES))}")
    top = Table("at the top", whole)
    handlers = _handlers(whole.get("handler", {}))
    rules = _rules(whole.get("rule", []), handlers)
    rendezvous = _rendezvous(whole.get("rendezvous"), rules)
    return Config(
        vm=top.text("vm", "") or None,
        url=top.text("url", "") or None,
        state=Path(top.text("state", str(default_state()))),
        margin_seconds=top.seconds("margin_seconds", MARGIN_SECONDS, zero=True),
        heartbeat_seconds=top.seconds("heartbeat_seconds", HEARTBEAT_SECONDS),
        metrics=top.address("metrics") if "metrics" in top else None,
        ready_file=_path(top, "ready_file"),
        rules=rules,
        handlers=handlers,
        rendezvous=rendezvous,
        takeover_seconds=_takeover(rendezvous),
    )


def _path(table: Table, key: str) -> Path | None:
    given = table.text(key, "")
    return Path(given) if given else None


# ---- Handlers ----


def _handlers(found: object) -> dict[str, HandlerTable]:
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise UsageError("a handler is a table with its name: [handler.NAME].")
    return every({str(name): partial(_handler, str(name), found[name]) for name in found})


def _handler(name: str, values: Mapping[str, object]) -> HandlerTable:
    table = Table(f"[handler.{name}]", values)
    seconds = table.seconds("seconds", 1.0) if "seconds" in table else None
    return HandlerTable(table.text("kind"), dict(values), seconds)


# ---- Rules ----


def _rules(found: object, handlers: Mapping[str, HandlerTable]) -> tuple[Rule, ...]:
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError("a rule is a table of a list: [[rule]], with two brackets.")
    makes = {
        str(number): partial(_rule, number, one, handlers) for number, one in enumerate(found, 1)
    }
    made = tuple(every(makes).values())
    names = [rule.course.rule for rule in made]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UsageError(f"two rules are called {twice[0]!r}: give each a name of its own.")
    return made


def _rule(number: int, values: Mapping[str, object], handlers: Mapping[str, HandlerTable]) -> Rule:
    called = values.get("name")
    where = f"[[rule]] {called!r}" if isinstance(called, str) else f"[[rule]] number {number}"
    # An empty list is a wish, and no mistake: nothing is prepared, nothing recovered.
    table = Table(where, {key: one for key, one in values.items() if one != []})
    lists = {key: _names(table, key, values.get(key), handlers) for key in ("prepare", "recover")}
    rule = Rule(_match(table), _course(table, f"rule {number}", lists, handlers))
    table.done()
    return rule


def _match(table: Table) -> Match:
    least = _duration(table, "duration_at_least")
    most = _duration(table, "duration_at_most")
    if least is not None and most is not None and least > most:
        raise table.refuse("duration_at_least is more than duration_at_most: nothing can fit.")
    return Match(
        types=_known_words(table, "types", EventType),
        sources=_known_words(table, "sources", EventSource),
        duration_at_least=least,
        duration_at_most=most,
        description=_pattern(table, "description"),
        scope=Reach(table.choice("scope", Reach, Reach.VM)),
    )


def _course(
    table: Table,
    name: str,
    lists: Mapping[str, tuple[str, ...] | None],
    handlers: Mapping[str, HandlerTable],
) -> Course:
    prepare, recover = lists["prepare"] or (), lists["recover"]
    if recover is None:
        recover = tuple(reversed(prepare))
    return Course(
        rule=table.text("name", name),
        prepare=prepare,
        recover=recover,
        # Whoever forgot to say what is prepared has not said that the event may begin.
        acknowledge=_word(
            table, "acknowledge", Acknowledge.WHEN_PREPARED if prepare else Acknowledge.NEVER
        ),
        on_failure=_word(table, "on_failure", OnFailure.GO_ON),
        when_short=_word(table, "when_short", WhenShort.SKIP),
        leader=_word(table, "leader", Leader.FIRST),
        recover_again=_recover_again(table, recover, handlers),
        tells=_of_kind(TELLERS, recover, handlers),
        gates=_of_kind(GATES, recover, handlers),
        recover_tries=table.count("recover_tries", RECOVER_TRIES, 1, _TRIES_MAX),
    )


def _recover_again(
    table: Table, recover: tuple[str, ...], handlers: Mapping[str, HandlerTable]
) -> tuple[str, ...]:
    """Whose recover may be run twice: as the rule says, or else where twice is as good as once."""
    for_all = table.flag("recover_again", default=False)
    if "recover_again" in table:
        return recover if for_all else ()
    return _of_kind(REPEATABLE, recover, handlers)


def _of_kind(
    kinds: tuple[str, ...], names: tuple[str, ...], handlers: Mapping[str, HandlerTable]
) -> tuple[str, ...]:
    return tuple(name for name in names if handlers[name].kind in kinds)


def _word(table: Table, key: str, default: Word) -> Word:
    return type(default)(table.choice(key, type(default), default))


def _duration(table: Table, key: str) -> int | None:
    # Asked for also where it is left out, so that it is known as a key.
    seconds = table.count(key, 0, -1, _DURATION_MAX)
    return seconds if key in table else None


def _known_words(table: Table, key: str, known: type[StrEnum]) -> frozenset[str]:
    words = table.words(key, ())
    for word in words:
        if word not in list(known):
            raise table.refuse(f"{key} has {word!r} in it. {nearest(word, known)}")
    return frozenset(words)


def _pattern(table: Table, key: str) -> re.Pattern[str] | None:
    text = table.text(key, "")
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise table.refuse(f"{key} is no regular expression: {error}.") from error


def _names(
    table: Table, key: str, given: object, handlers: Mapping[str, HandlerTable]
) -> tuple[str, ...] | None:
    """The handlers of a list; None where it is left out."""
    names = table.words(key, ())
    for name in names:
        if name not in handlers:
            near = nearest(name, handlers) if handlers else "There is no [handler.…] at all."
            raise table.refuse(f"{key} names {name!r}, which is no handler. {near}")
        if names.count(name) > 1:
            raise table.refuse(f"{key} names {name!r} twice: a handler is run once.")
    return None if given is None else names


# ---- Rendezvous ----


def _rendezvous(found: object, rules: tuple[Rule, ...]) -> Mapping[str, object] | None:
    if found is not None and not isinstance(found, dict):
        raise UsageError("[rendezvous] is a table.")
    needing = [one.course.rule for one in rules if one.course.leader is Leader.RENDEZVOUS]
    if needing and found is None:
        raise UsageError(
            f"rule {needing[0]!r} says leader = 'rendezvous': say where, in [rendezvous]."
        )
    return found


def _takeover(found: Mapping[str, object] | None) -> float:
    table = Table("[rendezvous]", found or {})
    return table.seconds("takeover_seconds", leader.TAKEOVER_SECONDS)
