"""`fairnotice webhook`: who outside is told of events."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from fairnotice.cli import exits, shown
from fairnotice.cli.backup import STANDARD
from fairnotice.cli.parsing import Subparsers, group, leaf, some_name, up_to
from fairnotice.cli.secret_files import new_file, write_or_print
from fairnotice.cli.session import Session
from fairnotice.deliveries.retries import ATTEMPTS_MAX, KEEP_MINUTES_MAX
from fairnotice.errors import UsageError
from fairnotice.words import EventSchema, EventStatus, EventType

COLUMNS = ("NAME", "SCHEMA", "[FILTERS]", "STATE", "WAITING", "DEAD", "URL")
LETTER_COLUMNS = ("ID", "EVENT", "STATUS", "GIVEN UP", "TRIES", "[WHY]")


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice webhook create ops http://127.0.0.1:8900/ --signed --output secret.txt",
        "fairnotice webhook list",
        "fairnotice webhook dead-letters ops",
        "fairnotice webhook redeliver ops",
    )
    commands = group(subparsers, "webhook", "who outside is told of events", lines)
    _add_create(commands)
    leaf(commands, "list", _list, "every webhook", ("fairnotice webhook list",))
    for name, run, summary in (
        ("show", _show, "how it stands with a webhook"),
        ("delete", _delete, "tell a webhook nothing any more, and forget what waits for it"),
        ("test", _test, "send a test to a webhook, once, and say what it answers"),
        ("dead-letters", _dead_letters, "what a webhook was to be told and was given up"),
    ):
        parser = leaf(commands, name, run, summary, (f"fairnotice webhook {name} ops",))
        parser.add_argument("name", type=some_name, metavar="NAME", help="its name or its id")
    lines = ("fairnotice webhook redeliver ops", "fairnotice webhook redeliver ops ID")
    again = leaf(commands, "redeliver", _redeliver, "have dead letters tried again", lines)
    again.add_argument("name", type=some_name, metavar="NAME", help="its name or its id")
    again.add_argument("ids", nargs="*", metavar="ID", help="only these; left out: all of them")


def _add_create(commands: Subparsers) -> None:
    lines = (
        "fairnotice webhook create ops http://127.0.0.1:8900/ --signed --output secret.txt",
        "fairnotice webhook create grid https://app.example.org/api --schema eventgrid",
        "fairnotice webhook create web https://web.example.org/in --scope availability-set:web",
        "fairnotice webhook create over https://log.example.org/ --status Completed",
        "fairnotice webhook create func - < url.txt     # a URL with a secret: ?code=…",
    )
    summary = "make a webhook, once its receiver has agreed; a secret is printed this once"
    create = leaf(commands, "create", _create, summary, lines)
    create.add_argument("name", type=some_name, metavar="NAME", help="how it is called")
    # Not `url`: that is the control plane's.
    what = "where it is told: https://…; - for the first line of standard input"
    create.add_argument("receiver", metavar="URL", help=what)
    schemas = tuple(map(str, EventSchema))
    create.add_argument(
        "--schema", choices=schemas, default=schemas[0], metavar="SCHEMA", help=" ".join(schemas)
    )
    for option, words in (("--status", EventStatus), ("--type", EventType)):
        choices = tuple(map(str, words))
        create.add_argument(
            option,
            action="append",
            default=[],
            choices=choices,
            metavar=option.strip("-").upper(),
            help=f"only of these, again for more: {' '.join(choices)}",
        )
    for option, metavar in (("--scope", "SCOPE"), ("--resource-group", "GROUP")):
        what = "only what is in it; again for more"
        create.add_argument(option, action="append", default=[], metavar=metavar, help=what)
    create.add_argument(
        "--signed", action="store_true", help="sign every delivery with a secret of its own"
    )
    create.add_argument(
        "--output", metavar="FILE", help="write the secret there, for its owner only; a new file"
    )
    create.add_argument(
        "--allow-http", action="store_true", help="plain HTTP to another machine, unencrypted"
    )
    for option, most, what in (
        ("--attempts", ATTEMPTS_MAX, "give up after so many tries"),
        ("--keep-minutes", KEEP_MINUTES_MAX, "or after so long"),
    ):
        create.add_argument(option, type=partial(up_to, most), metavar=str(most), help=what)


def _create(session: Session) -> int:
    options = session.options
    body = {
        "name": options.name,
        "url": _receiver(options.receiver),
        "schema": options.schema,
        "statuses": options.status,
        "types": options.type,
        "scopes": options.scope,
        "resource_groups": options.resource_group,
        "signed": options.signed,
        "allow_http": options.allow_http,
        "attempts_max": options.attempts,
        "keep_minutes": options.keep_minutes,
    }
    given = {name: value for name, value in body.items() if value is not None and value != []}
    if options.output is None:
        return session.show(session.remote.post("v1", "webhooks", body=given), _say_created)
    if not options.signed:
        raise UsageError("Without --signed there is no secret to write to --output.")
    with new_file(Path(options.output), "no webhook is made") as file:
        made = session.remote.post("v1", "webhooks", body=given)
        if not write_or_print(made.pop("secret"), file, options.output):
            return exits.REFUSED
    return session.show(made, partial(_say_kept, options.output))


def _receiver(given: str) -> str:
    """Where it is told: whatever stands in a command line, every user of the machine may read."""
    if given != STANDARD:
        return given
    url = sys.stdin.readline().strip()
    if not url:
        raise UsageError("Standard input has no URL in its first line.")
    return url


def _say_created(made: dict[str, Any]) -> None:
    if made["secret"]:
        # Alone on standard output, and as it is: so that it can be sent into a file.
        print(made["secret"])
        shown.note("That is the secret of its signatures. It is not shown again: keep it safe.")
    _say_made(made)


def _say_kept(file: str, made: dict[str, Any]) -> None:
    shown.say(f"{file}: the secret of its signatures. It is not shown again: keep it safe.")
    _say_made(made)


def _say_made(made: dict[str, Any]) -> None:
    webhook = made["webhook"]
    shown.note(f"{webhook['name']} is told at {webhook['url']}: {webhook['state']}.")
    for warning in made["warnings"]:
        shown.note(warning)


def _list(session: Session) -> int:
    return session.show(session.remote.everything("webhooks"), _picture)


def _picture(found: dict[str, Any]) -> None:
    if not found["items"]:
        shown.say(shown.dim("There is no webhook. Make one: fairnotice webhook create"))
        return
    rows = (
        (
            one["name"],
            one["schema"],
            _filters(one) or "none",
            one["state"],
            str(one["waiting"]),
            str(one["dead_letters"]),
            one["url"],
        )
        for one in found["items"]
    )
    shown.say(shown.table(COLUMNS, rows))


def _filters(webhook: dict[str, Any]) -> str:
    kinds = ("statuses", "types", "scopes", "resource_groups")
    return ", ".join(value for kind in kinds for value in webhook[kind])


def _show(session: Session) -> int:
    found = session.remote.get("v1", "webhooks", session.options.name)
    return session.show(found, partial(_say_standing, session))


def _say_standing(session: Session, webhook: dict[str, Any]) -> None:
    now = session.clock.wall()
    again = shown.when(webhook["next_at"], now)
    tries = shown.counted(webhook["attempts_max"], "try", "tries")
    minutes = shown.counted(webhook["keep_minutes"], "minute")
    rows = (
        ("told at", webhook["url"]),
        ("schema", webhook["schema"]),
        ("told of", _filters(webhook) or "every event"),
        ("signed", "yes" if webhook["signed"] else "no"),
        ("plain HTTP", "allowed" if webhook["allow_http"] else ""),
        ("given up after", f"{tries}, or {minutes}"),
        ("made", f"{shown.at(webhook['created_at'], now)} by {webhook['created_by']}"),
        ("waiting", str(webhook["waiting"])),
        ("the oldest", f"{webhook['error']}; tried again {again}" if webhook["error"] else ""),
        ("dead letters", str(webhook["dead_letters"])),
    )
    shown.facts(shown.title(webhook["name"], shown.styled(webhook["state"])), rows)


def _delete(session: Session) -> int:
    gone = session.remote.delete("v1", "webhooks", session.options.name)
    forgotten = gone["waiting"] + gone["dead_letters"]
    left = shown.counted(forgotten, "delivery that is", "deliveries that are")
    left = f", with {left} forgotten" if forgotten else ""
    return session.show(gone, lambda _: shown.say(f"Deleted: {gone['name']}{left}"))


def _test(session: Session) -> int:
    tested = session.remote.post("v1", "webhooks", session.options.name, "test")
    said = f"Taken: it answered {tested['status']}." if tested["taken"] else ""
    session.show(tested, lambda _: shown.say(said or f"Not taken: {tested['error']}."))
    return exits.DONE if tested["taken"] else exits.REFUSED


def _dead_letters(session: Session) -> int:
    name, items = session.options.name, []
    after: str | None = ""
    while after is not None:
        page = session.remote.get("v1", "webhooks", name, "dead-letters", after=after)
        items += page["items"]
        after = page["next"]
    return session.show({"items": items, "next": None}, partial(_picture_letters, session))


def _picture_letters(session: Session, found: dict[str, Any]) -> None:
    if not found["items"]:
        shown.say(shown.dim("There is no dead letter."))
        return
    now = session.clock.wall()
    rows = (
        (
            one["id"],
            one["event"],
            one["status"],
            shown.when(one["dead_at"], now),
            str(one["attempts"]),
            one["error"],
        )
        for one in found["items"]
    )
    shown.say(shown.table(LETTER_COLUMNS, rows))


def _redeliver(session: Session) -> int:
    body = {"ids": session.options.ids}
    done = session.remote.post("v1", "webhooks", session.options.name, "redeliver", body=body)
    return session.show(done, partial(_say_redelivered, session))


def _say_redelivered(session: Session, done: dict[str, Any]) -> None:
    name = session.options.name
    shown.say(f"Tried again: {done['count']}")
    if done["count"]:
        # Whether they are taken is seen later: a receiver has 30 seconds to answer.
        shown.note(f"What came of it: fairnotice webhook show {name}")
        return
    webhook = session.remote.get("v1", "webhooks", name)
    again = shown.when(webhook["next_at"], session.clock.wall())
    when = f", the next try {again}" if again else ""
    verb = "waits" if webhook["waiting"] == 1 else "wait"
    waiting = f" {webhook['waiting']} {verb}{when}." if webhook["waiting"] else ""
    shown.note(f"No letter is dead.{waiting}")
