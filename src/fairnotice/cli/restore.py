"""`fairnotice restore`: an empty database becomes what a backup holds."""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO

from fairnotice.cli import shown
from fairnotice.cli.backup import STANDARD, as_json, in_words
from fairnotice.cli.parsing import Subparsers, leaf, store_options
from fairnotice.cli.session import Session
from fairnotice.errors import UsageError
from fairnotice.stores.backups import Backup, Summary, restore
from fairnotice.stores.opening import open_store

LOST = (
    "What was asked for, approved and carried out after that is not known here; tokens that were "
    "revoked after that count again, and operations that were pending then start again when they "
    "are due. Before you start the service: revoke those tokens, keep the state directory of the "
    "driver, which knows what was done, and have the fleet file at hand to apply it."
)
TOLD = (
    "Their receivers are told from the start of the service on, also where a webhook was deleted "
    "after the backup: first, once more, what was announced then, and then what happens here. "
    "Delete those that are not to be: fairnotice webhook delete NAME. Where nobody may be told "
    "until then, or ever, as by a copy beside the service, restore it into another database, with "
    "--without-webhooks."
)
NOT_TOLD = "Left out: nobody is told of events by whoever starts with this database."


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    lines = (
        "fairnotice restore fleet.backup --store sqlite:new.db",
        "fairnotice restore fleet.backup --store postgresql://fairnotice@db/fairnotice",
        "fairnotice restore fleet.backup --store-file /etc/fairnotice/store-url",
        "fairnotice restore fleet.backup --store sqlite:drill.db --without-webhooks",
    )
    summary = "make an empty database what a backup holds"
    parser = leaf(subparsers, "restore", _restore, summary, lines)
    parser.add_argument("file", metavar="FILE", help="a backup; - for standard input")
    store_options(parser, "database", "a new, empty database", required=True)
    what = "for a copy beside the service: leave them out, so that it tells nobody"
    parser.add_argument("--without-webhooks", action="store_true", help=what)


def _restore(session: Session) -> int:
    options = session.options
    if options.database == "memory:":
        raise UsageError("What is in memory is gone with this command: name a database.")
    if options.file == STANDARD:
        found = _filled(session, sys.stdin.buffer, "standard input")
    else:
        try:
            with Path(options.file).open("rb") as file:
                found = _filled(session, file, options.file)
        except OSError as error:
            raise UsageError(f"{options.file} cannot be read: {error.strerror}.") from error
    result = {**as_json(found), "without_webhooks": options.without_webhooks}
    return session.show(result, partial(_say, session, found))


def _filled(session: Session, file: IO[bytes], name: str) -> Summary:
    # Looked at before a database is made for it.
    backup = Backup(file, name)
    with closing(open_store(session.options.database)) as store:
        webhooks = not session.options.without_webhooks
        return restore(backup, store, session.clock.wall(), webhooks=webhooks)


def _say(session: Session, found: Summary, _: object) -> None:
    shown.say(f"Restored: {in_words(found)}.")
    shown.note(LOST)
    if found.webhooks:
        then = NOT_TOLD if session.options.without_webhooks else TOLD
        shown.note(f"Webhooks: {', '.join(found.webhooks)}. {then}")
