"""A handler by the name of its kind: those built in, and those of other packages.

Another package offers its own by an entry point of the group `fairnotice.handlers`: a callable that
takes the settings of the table and returns a Handler (docs/guides/own-handlers.md).
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from fairnotice.agent.handlers.handler import Handler
from fairnotice.agent.tables import Table, nearest
from fairnotice.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fairnotice.handlers"
_BUILT_IN = (
    "checkpoint",
    "command",
    "failover",
    "haproxy",
    "health-gate",
    "log",
    "mail",
    "shutdown",
    "systemd",
    "webhook",
)
# Of every handler, and for the plan alone: which kind it is, and its most seconds.
_OF_THE_PLAN = frozenset({"kind", "seconds"})


def kinds() -> tuple[str, ...]:
    """The names of all kinds that there are here, in their order."""
    return tuple(sorted({*_BUILT_IN, *_entry_points()}))


def make(
    kind: str, settings: Mapping[str, object], name: str, state: Path | None = None
) -> Handler:
    """The handler of `[handler.NAME]`; UsageError with a sentence where its settings cannot be.

    `state` is the agent's directory: what a handler must know to recover after the agent has begun
    anew is kept there. Without one it is known in this life of the agent only.
    """
    where = f"[handler.{name}]"
    own = {key: value for key, value in settings.items() if key not in _OF_THE_PLAN}
    if kind in _BUILT_IN:
        module = import_module(f"fairnotice.agent.handlers.{kind.replace('-', '_')}")
        table = Table(where, own, state and state / "handlers" / f"{quote(name, safe='')}.json")
        handler = cast("Handler", module.make(table))
        table.done()
        return handler
    entry = _entry_points().get(kind)
    if entry is None:
        raise UsageError(f"{where}: there is no kind {kind!r}. {nearest(kind, kinds())}")
    return _made_by(entry, own, where)


def _made_by(entry: "EntryPoint", settings: Mapping[str, object], where: str) -> Handler:
    """What another package makes of the settings."""
    try:
        handler = entry.load()(settings)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    # Whatever another package raises is wrapped here, at the door, with its cause.
    except Exception as error:
        raise UsageError(
            f"{where}: the kind {entry.name} of {entry.value} cannot be made: {error!r}."
        ) from error
    missing = [one for one in ("prepare", "recover", "open", "close") if not hasattr(handler, one)]
    if missing:
        raise UsageError(f"{where}: what {entry.value} made has no {' and no '.join(missing)}.")
    return cast("Handler", handler)


def _entry_points() -> dict[str, "EntryPoint"]:
    # It brings `email` and more, which a guest with built-in kinds alone need not carry.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {entry.name: entry for entry in entry_points(group=GROUP)}
