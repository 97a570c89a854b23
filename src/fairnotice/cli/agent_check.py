"""`fairnotice agent check`: whether the file is right, and what would be done about each event."""

import argparse
import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fairnotice.cli import exits
from fairnotice.cli.agent_parts import agent_runs, configured, made_client, print_table, unreachable
from fairnotice.errors import ClientError, Unavailable

if TYPE_CHECKING:
    from fairnotice.agent.config import Config
    from fairnotice.agent.plan import Limits
    from fairnotice.client.document import Event


def check(options: argparse.Namespace) -> int:
    """Read the file, make everything in it, and try it on the events that there are."""
    from fairnotice.agent import daemon, rendezvous  # noqa: PLC0415 - as above

    config = configured(options)
    daemon.made_handlers(config)
    if config.rendezvous is not None:
        rendezvous.look(rendezvous.make(config.rendezvous))
    doubts, failure = _doubts(config), None
    rows: list[dict[str, Any]] = []
    if not options.offline:
        try:
            about, rows = _dry_run(config)
            doubts += about
        except ClientError as error:
            failure = unreachable(error, " With --offline the file alone is checked.")
    if options.json and failure is None:
        told = {"rules": len(config.rules), "doubts": doubts, "events": rows}
        print(json.dumps(told, indent=2))
        return exits.DONE
    if not options.json:
        _show_check(config, doubts)
    if failure is not None:
        raise failure
    if not options.offline:
        _show_dry_run(config, rows)
    return exits.DONE


def _show_check(config: "Config", doubts: Sequence[str]) -> None:
    can_be = "can be read, but look at this" if doubts else "is right"
    print(
        f"The configuration {can_be}. Rules: {len(config.rules)} and the built-in one; "
        f"handlers: {len(config.handlers)}."
    )
    for doubt in doubts:
        print(f"  - {doubt}")


def _show_dry_run(config: "Config", rows: "Sequence[dict[str, Any]]") -> None:
    columns = ("EVENT", "TYPE", "STATUS", "RULE", "TIME", "PREPARES", "SKIPS", "ACKNOWLEDGES")
    print_table(columns, [_dry_cells(row) for row in rows], "There is no event to try it on.")
    if rows:
        margin = f"until NotBefore, less margin_seconds ({config.margin_seconds:g} s)"
        print(f"TIME is what there is to prepare: {margin}; none once it is Started.")


def _doubts(config: "Config") -> list[str]:
    from fairnotice.agent import daemon, journal, status  # noqa: PLC0415 - as above
    from fairnotice.agent.doubts import doubts  # noqa: PLC0415

    try:
        told, records = status.read(config.state), journal.read(config.state)
    except Unavailable as error:
        return [str(error), *doubts(config, runs=True)]
    live = [one for one in records.values() if not one.over]
    runs = agent_runs(config.state, told)
    return [*doubts(config, runs=runs), *daemon.missing_handlers(live, config)]


def _dry_run(config: "Config") -> tuple[list[str], list[dict[str, Any]]]:
    """What is odd about the answers, and a row for each event. Raises ClientError."""
    from fairnotice.agent.daemon import other_name, vm_name  # noqa: PLC0415 - as above
    from fairnotice.agent.plan import Limits  # noqa: PLC0415

    client = made_client(config.url)
    document = client.get()
    try:
        name = vm_name(client)
    except ClientError:
        if config.vm is None:
            raise
        name = config.vm
    limits = Limits(config.margin_seconds, config.limits)
    vm, now = config.vm or name, client.now()
    odd = [sentence for sentence in [other_name(config, name)] if sentence]
    return odd, [_dry_row(config, event, vm, now, limits) for event in document.events]


def _dry_row(
    config: "Config", event: "Event", vm: str, now: datetime, limits: "Limits"
) -> dict[str, Any]:
    from fairnotice.agent.rehearsal import rehearse  # noqa: PLC0415 - as above
    from fairnotice.agent.rules import BUILT_IN, choose  # noqa: PLC0415

    rule = choose(config.rules, event, vm)
    came = rehearse(event, vm, (rule or BUILT_IN).course, now, limits)
    return {
        "event": event.id,
        "type": event.type,
        "status": event.status,
        "rule": rule.course.rule if rule else None,
        "seconds": None if came.seconds is None else round(came.seconds, 1),
        "prepare": list(came.runs),
        "skip": came.skipped,
        "acknowledge": came.acknowledges,
        "withheld": came.withheld or None,
    }


def _dry_cells(row: dict[str, Any]) -> Sequence[str]:
    seconds = row["seconds"]
    return (
        row["event"],
        row["type"],
        row["status"],
        row["rule"] or "none: of others",
        "not said" if seconds is None else f"{seconds:.0f} s",
        ", ".join(row["prepare"]),
        ", ".join(f"{name} ({why})" for name, why in row["skip"].items()),
        row["acknowledge"] + (f" ({row['withheld']})" if row["rule"] and row["withheld"] else ""),
    )
