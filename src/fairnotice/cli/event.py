"""`fairnotice event`: look at events, approve, postpone and cancel them, watch them live."""

from functools import partial
from itertools import pairwise
from typing import Any

from rich.text import Text

from fairnotice.cli import accepted, shown, watch
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import from_api, instant, length, seconds_in_words, to_api
from fairnotice.cli.parsing import Subparsers, group, leaf, names, some_name
from fairnotice.cli.session import Session
from fairnotice.control.in_words import notice_in_words

SEVERAL = """its id, or how that begins. Of several events each is asked for by itself, in this
order; with --json the answers are then a list, each with its name and error"""
TOO_LATE = {"Started": "has started", "Completed": "is over", "Canceled": "is canceled"}
DONE = {"approve": "approved", "cancel": "canceled", "release": "released"}
STATUSES = ("Scheduled", "Started", "Completed", "Canceled")


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice event list",
        "fairnotice event watch",
        "fairnotice event approve 2B9C      # an id may be cut short",
    )
    commands = group(subparsers, "event", "look at events, and decide what becomes of them", lines)
    _add_looking(commands)
    _add_deciding(commands)


def _add_looking(commands: Subparsers) -> None:
    lines: tuple[str, ...] = (
        "fairnotice event list",
        "fairnotice event list --all",
        "fairnotice event list --json",
    )
    listing = leaf(commands, "list", _list, "the events that are not over", lines)
    listing.add_argument("--all", action="store_true", help="also those of the last day")
    listing.add_argument("--status", choices=STATUSES, help="only those in this status")
    show = leaf(commands, "show", _show, "one event", ("fairnotice event show 2B9C",))
    names(show, "events", many=False)
    lines = ("fairnotice event history 2B9C",)
    history = leaf(commands, "history", _history, "the story of an event", lines)
    names(history, "events", many=False)
    lines = (
        "fairnotice event watch               # a live view; Ctrl-C ends it",
        "fairnotice event watch --vm web-0    # what concerns web-0",
        "fairnotice event watch | tee log     # in a pipe: a line for each change",
        "fairnotice event watch --json        # the changes as the feed has them",
    )
    watching = leaf(commands, "watch", watch.watch, "events live, with countdowns", lines)
    watching.add_argument(
        "--vm", type=some_name, metavar="NAME", help="only events that name this VM"
    )


def _add_deciding(commands: Subparsers) -> None:
    lines: tuple[str, ...] = ("fairnotice event approve 2B9C", "fairnotice event approve 2B9C 71F0")
    approve = leaf(
        commands, "approve", partial(_do, "approve"), "go ahead before the notice is over", lines
    )
    names(approve, "events", what=SEVERAL)
    lines = ("fairnotice event cancel 2B9C",)
    summary = "take back the operation of an event, with all its events"
    cancel = leaf(commands, "cancel", partial(_do, "cancel"), summary, lines)
    names(cancel, "events", what=SEVERAL)
    lines = ("fairnotice event release 2B9C",)
    summary = "do not wait for endpoints that have not confirmed it"
    release = leaf(commands, "release", partial(_do, "release"), summary, lines)
    names(release, "events", what=SEVERAL)
    lines = (
        "fairnotice event postpone 2B9C --by 30m",
        "fairnotice event postpone 2B9C --to 2026-01-31T22:00Z",
    )
    postpone = leaf(commands, "postpone", _postpone, "give more notice", lines)
    names(postpone, "events", many=False)
    how = postpone.add_mutually_exclusive_group(required=True)
    how.add_argument("--by", type=length, metavar="LENGTH", help="later than now planned: 30m")
    how.add_argument("--to", type=instant, metavar="WHEN", help="2026-01-31T22:00Z, or +15m")


# ---- Looking ----


def _list(session: Session) -> int:
    status = session.options.status
    found = session.remote.everything("events", **({"status": status} if status else {}))
    events = found["items"]
    if not (session.options.all or status):
        found["items"] = [event for event in events if event["gone_at"] is None]
    over = len(events) - len(found["items"])

    def picture(found: dict[str, Any]) -> None:
        if found["items"]:
            shown.say(shown.events(found["items"], session.clock.wall()))
        else:
            shown.say(shown.dim("No events." if status else "Nothing is announced or under way."))
        _say_who_is_held(found["items"])
        if over:
            more = f"{shown.counted(over, 'event')} of the last day, over: "
            shown.hint(f"{more}fairnotice event list --all")

    return session.show(found, picture)


def _say_who_is_held(events: list[dict[str, Any]]) -> None:
    """Name the endpoints for which events wait, since none of them starts without."""
    held = [event for event in events if event["unconfirmed"]]
    nodes = dict.fromkeys(node for event in held for node in event["unconfirmed"])
    if held:
        shown.note(
            f"{shown.counted(len(held), 'event')} not confirmed by {shown.listed(nodes)}: held "
            "until its endpoint shows them, or fairnotice event release ID"
        )


def _event(session: Session) -> str:
    return session.remote.id_of("events", session.options.name)


def _show(session: Session) -> int:
    event = session.remote.get("v1", "events", _event(session))
    return session.show(event, partial(_picture, session))


def _picture(session: Session, event: dict[str, Any]) -> None:
    now = session.clock.wall()
    seen = (f"{one['vm']} ({shown.at(one['at'], now)})" for one in event["seen"])
    by = (f"{one['by']} ({shown.at(one['at'], now)})" for one in event["approvals"])
    shown.facts(
        headline(event),
        (
            ("id", event["id"]),
            ("what", event["description"]),
            ("not before", shown.not_before(event, now, waiting=event["status"] == "Scheduled")),
            ("announced", shown.when(event["announced_at"], now)),
            ("first seen", shown.listed(seen)),
            ("never seen", shown.listed(event["never_seen"])),
            ("approved by", shown.listed(by)),
            ("not confirmed by", shown.listed(event["unconfirmed"])),
            ("started", shown.when(event["started_at"], now)),
            ("gone", shown.when(event["gone_at"], now)),
            ("failed", shown.listed(event["failed"])),
            ("notice", notice(event)),
            ("source", event["source"]),
            ("scope", event["scope"]),
            ("node", event["node"]),
            ("operation", event["operation"]),
            ("reason", event["reason"]),
        ),
    )
    # What is over for a day is known by its whole id only.
    name = event["id"] if event["gone_at"] else event["id"][: shown.SHORT]
    shown.hint(f"Its story: fairnotice event history {name}")


def headline(event: dict[str, Any]) -> Text:
    """`Reboot of web-0 · Scheduled`."""
    resources = shown.listed(event["resources"]) or "nobody"
    return shown.title(f"{event['type']} of {resources}", shown.event_status(event))


def notice(event: dict[str, Any]) -> str:
    """How its promise is kept."""
    promised = f"{notice_in_words(event['notice_seconds'])} promised"
    given = event["notice_given_seconds"]
    return promised if given is None else f"{promised}, {notice_in_words(given)} given"


def _history(session: Session) -> int:
    history = session.remote.get("v1", "events", _event(session), "history")
    return session.show(history, partial(_story, session))


def _story(session: Session, history: dict[str, Any]) -> None:
    now = session.clock.wall()
    event, steps = history["event"], history["steps"]
    shown.say(headline(event), shown.dim(f"  {event['id']}"))
    instants = [from_api(step["at"]) for step in steps]
    waits = [None, *((late - early).total_seconds() for early, late in pairwise(instants))]
    rows = (
        (f"  {shown.at(step['at'], now)}", shown.dim(_later(wait)), step["text"])
        for step, wait in zip(steps, waits, strict=True)
    )
    shown.say(shown.table(("  AT (UTC)", "", "[WHAT]"), rows))
    shown.say(f"Notice: {notice(event)}.")
    if event["never_seen"]:
        shown.say(Text(f"Never looked: {shown.listed(event['never_seen'])}.", "yellow"))


def _later(seconds: float | None) -> str:
    return "" if seconds is None else f"+{seconds_in_words(seconds)}"


# ---- Deciding ----


def _do(what: str, session: Session) -> int:
    given = session.options.names
    session.options.names = [session.remote.id_of("events", name) for name in given]

    def ask(name: str) -> dict[str, Any]:
        found: dict[str, Any] = session.remote.post("v1", "events", name, what)
        if what == "approve":
            _must_be_approved(session.remote.get("v1", "events", name))
        return found

    def tell(done: list[str], result: dict[str, Any]) -> None:
        for name in done:
            event = session.remote.get("v1", "events", name)
            words = f"{shown.short(name)} {DONE[what]}"
            shown.say(shown.title(words, headline(event)))
        for warning in result["warnings"]:
            shown.note(warning)

    return accepted.for_each(session, "events", ask, tell)


def _must_be_approved(event: dict[str, Any]) -> None:
    """The law takes every approval, as the endpoint does; of what is too late nothing comes."""
    if not event["approvals"]:
        why = TOO_LATE[event["status"]]
        raise CommandFailed(f"{shown.short(event['id'])} {why}: there is nothing to approve.")


def _postpone(session: Session) -> int:
    name, options = _event(session), session.options
    if options.by is not None:
        event = session.remote.get("v1", "events", name)
        to = from_api(event["not_before"]) + options.by
    else:
        to = options.to(session.clock.wall())
    result = session.remote.post("v1", "events", name, "postpone", body={"not_before": to_api(to)})

    def picture(result: dict[str, Any]) -> None:
        event = session.remote.get("v1", "events", name)
        until = shown.when(event["not_before"], session.clock.wall())
        shown.say(shown.title(f"{name[: shown.SHORT]} postponed", f"not before {until}"))
        for warning in result["warnings"]:
            shown.note(warning)

    return session.show(result, picture)
