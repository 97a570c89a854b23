"""What came of a command that asked for something: which events announce it, and what is next."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairnotice.cli import exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.session import Session

# A line to copy names so many events.
HINTED = 4
# A sentence names so many VMs.
NAMED = 8

Ask = Callable[[str], dict[str, Any]]
# Told of the names for which it was done, and of what came of all of them together.
Tell = Callable[[list[str], dict[str, Any]], None]


def for_each(session: Session, kind: str, ask: Ask, tell: Tell) -> int:
    """Ask this for each of the names that were typed; all must be there before the first."""
    names: Sequence[str] = list(dict.fromkeys(session.options.names))
    if len(names) > 1:
        for name in names:
            session.remote.get("v1", kind, name)
    done: dict[str, dict[str, Any]] = {}
    failures: dict[str, CommandFailed] = {}
    for name in names:
        try:
            done[name] = ask(name)
        except CommandFailed as failure:
            if len(names) == 1:
                raise
            failures[name] = failure
            shown.note(f"{name}: {failure}")
    if session.json:
        results = [_named(name, done.get(name), failures.get(name)) for name in names]
        shape = results if len(names) > 1 else done[names[0]]
        print(json.dumps(shape, indent=2, ensure_ascii=False))
    elif done:
        tell(list(done), _together(done.values()))
    return next((failure.code for failure in failures.values()), exits.DONE)


def _named(
    name: str, result: dict[str, Any] | None, failure: CommandFailed | None
) -> dict[str, Any]:
    """One of several answers, for a program: whose it is, and what was refused."""
    error = None if failure is None else str(failure)
    return {"name": name, "error": error, **(_nothing() if result is None else result)}


def _nothing() -> dict[str, Any]:
    return {"operations": [], "events": [], "left": [], "warnings": []}


def _together(results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Several results as one."""
    whole = _nothing()
    for result in results:
        for key, values in whole.items():
            values += [value for value in result[key] if value not in values]
    return whole


def picture(session: Session, what: str, result: dict[str, Any], *, nothing: str = "done") -> None:
    """One accepted command, as people read it; `nothing` is what was done without operations."""
    events = result["events"]
    shown.say(shown.title(what, shown.dim(_told(result, nothing))))
    if events:
        shown.say(shown.events(events, session.clock.wall()))
        waiting = [event["id"][: shown.SHORT] for event in events if _may_be_approved(event)]
        if waiting:
            shown.hint(f"Go ahead now: fairnotice event approve {' '.join(waiting[:HINTED])}")
    elif len(result["operations"]) == 1:
        name = shown.short(result["operations"][0])
        shown.hint(f"What becomes of it: fairnotice operation show {name}")
    if result["left"]:
        shown.note(f"Left where they are, for want of a place: {shown.listed(result['left'])}")
    for warning in result["warnings"]:
        shown.note(warning)


def say_who_is_silent(session: Session, untold: Iterable[str], told: str = "was told") -> None:
    """Of these VMs, that nobody is told of what is done to them, where that is so, and why."""
    scopes = session.remote.everything("scopes")["items"]
    silent = {scope["name"] for scope in scopes if not scope["enabled"]}
    if not silent:
        return
    vms = {vm["name"]: vm["scope"] for vm in session.remote.everything("vms")["items"]}
    by_scope: dict[str, list[str]] = {}
    for name in untold:
        if vms.get(name) in silent:
            by_scope.setdefault(vms[name], []).append(name)
    for scope, names in by_scope.items():
        whose = "its" if len(names) == 1 else "their"
        why = f"no VM of {whose} scope ({scope}) has asked within a day, so nobody {told}."
        more = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
        shown.note(f"{shown.listed(names[:NAMED])}{more}: {why}")


def _may_be_approved(event: dict[str, Any]) -> bool:
    return event["status"] == "Scheduled" and not event["approvals"]


def _told(result: dict[str, Any], nothing: str) -> str:
    events = result["events"]
    if not events:
        return "accepted; no event announces it" if result["operations"] else nothing
    if all(event["status"] == "Scheduled" for event in events):
        return f"announced by {shown.counted(len(events), 'event')}"
    return "accepted"
