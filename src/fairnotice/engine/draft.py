"""The fleet as it would be: where `decide` tries its changes before anybody commits them.

A decision often has consequences that the law must see while it still decides: the VM that moved
has left an event, which was the last one its operation waited for. So each change is put on a
draft at once. Only the changes and effects leave this room; the draft is thrown away.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from datetime import datetime
from typing import Any, TypeVar, overload

from fairnotice.engine.changes import Change, Removal
from fairnotice.engine.effects import Effect, Matter, Subject, WakeAt
from fairnotice.engine.fleet import Fleet
from fairnotice.engine.tables import INDEXES, TABLES, Tables
from fairnotice.model import Event, Moment, RolloutNode

Key = TypeVar("Key")
Value = TypeVar("Value")
Default = TypeVar("Default")

_MISSING: Any = object()
_GONE: Any = object()
_OVERLAID = frozenset((*TABLES, *INDEXES))


class Overlay(MutableMapping[Key, Value]):
    """A mapping laid over another one, which it never writes to."""

    __slots__ = ("_base", "_own")

    def __init__(self, base: MutableMapping[Key, Value]) -> None:
        self._base = base
        self._own: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        value: Value = self._own.get(key, _MISSING)
        if value is _MISSING:
            return self._base[key]
        if value is _GONE:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: Key) -> Value | None: ...
    @overload
    def get(self, key: Key, default: Value | Default) -> Value | Default: ...
    def get(self, key: Key, default: Any = None) -> Any:
        """As dict.get; written out because it is asked all the time."""
        value = self._own.get(key, _MISSING)
        if value is _MISSING:
            return self._base.get(key, default)
        return default if value is _GONE else value

    def __contains__(self, key: object) -> bool:
        value = self._own.get(key, _MISSING)  # type: ignore[arg-type]
        return key in self._base if value is _MISSING else value is not _GONE

    def __setitem__(self, key: Key, value: Value) -> None:
        self._own[key] = value

    def __delitem__(self, key: Key) -> None:
        if key not in self:
            raise KeyError(key)
        self._own[key] = _GONE

    def __iter__(self) -> Iterator[Key]:
        for key in self._base:
            if self._own.get(key, _MISSING) is not _GONE:
                yield key
        for key, value in self._own.items():
            if value is not _GONE and key not in self._base:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)


class Draft(Tables):
    """A fleet under decision. Reads like the fleet; `record` is how it changes."""

    def __init__(self, fleet: Fleet, now: Moment) -> None:
        self.fleet = fleet
        self.timing = fleet.timing
        self.revision = fleet.revision
        self.life = fleet.life
        self.moment = now
        self.now: datetime = now.wall
        self.changes: list[Change[Any]] = []
        self.effects: list[Effect] = []
        self.warnings: list[str] = []
        # What the end of a decision looks at again: operations that may start now, operations
        # that ended, events whose scope may have to be told.
        self.candidates: dict[str, None] = {}
        # Operations that turned out not to be due, and whose followers were looked at for it.
        self.stood_aside: set[str] = set()
        self.ended_operations: list[str] = []
        self.failed_operations: list[str] = []
        self.touched_events: dict[str, None] = {}
        self.touched_nodes: dict[str, None] = {}
        self.newly_waiting: list[RolloutNode] = []

    def __getattr__(self, name: str) -> Overlay[Any, Any]:
        """Lay a table over the fleet's when it is first asked for: most commands need few."""
        if name not in _OVERLAID:
            raise AttributeError(name)
        overlay: Overlay[Any, Any] = Overlay(getattr(self.fleet, name))
        self.__dict__[name] = overlay
        return overlay

    def record(self, change: Change[Any]) -> None:
        """This is different from now on."""
        self.revision += 1
        self.changes.append(change)
        if isinstance(change, Removal):
            self.drop(change.row)
        else:
            self.put(change.row)
            if type(change.row) is Event:
                self.touched_events[change.row.id] = None

    def ask(self, effect: Effect) -> None:
        """Once the changes are durable, this is to be done."""
        self.effects.append(effect)

    def wake(self, at: datetime, matter: Matter, subject: str) -> None:
        """Look at this again then."""
        self.effects.append(WakeAt(at, Subject(matter, subject)))

    def consider(self, operations: Iterable[str]) -> None:
        """At the end of this decision, look whether these operations may start."""
        for operation in operations:
            self.candidates[operation] = None

    def node_touched(self, name: str) -> None:
        """Remember it: the fleet's own index of open nodes does not know of it yet."""
        self.touched_nodes[name] = None

    def rollout_node_touched(self, row: RolloutNode) -> None:
        """Remember where it stands: the fleet's own indexes do not know of it yet."""
        self.newly_waiting.append(row)
