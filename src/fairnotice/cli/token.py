"""`fairnotice token`: who may do what. The first one is made straight in the store."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fairnotice.cli import exits, shown
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.instants import from_api
from fairnotice.cli.parsing import Subparsers, group, leaf, some_name, store_options
from fairnotice.cli.secret_files import new_file, write_or_print
from fairnotice.cli.session import Session
from fairnotice.control import straight, tokens
from fairnotice.errors import UsageError
from fairnotice.stores.access import Token
from fairnotice.stores.opening import open_store
from fairnotice.stores.store import Store
from fairnotice.words import TokenRole

COLUMNS = ("NAME", "ROLE", "[LIMITS]", "[VM]", "EXPIRES", "STATE", "ID")
# Who made a token that was made without asking a control plane.
STRAIGHT = straight.WHOEVER


def add(subparsers: Subparsers) -> None:
    """Add the group."""
    lines: tuple[str, ...] = (
        "fairnotice token create ann --role operator --output ann.token",
        "fairnotice token create shop --role operator --resource-group shop",
        "fairnotice token list",
        "fairnotice token revoke ann",
    )
    commands = group(subparsers, "token", "tokens of the control plane: who may do what", lines)
    _add_create(commands)
    listing = leaf(
        commands, "list", _list, "every token there ever was", ("fairnotice token list",)
    )
    _add_store(listing)
    lines = ("fairnotice token revoke ann",)
    revoke = leaf(commands, "revoke", _revoke, "let a token count no longer", lines)
    revoke.add_argument("name", type=some_name, metavar="NAME", help="its name or its id")
    _add_store(revoke)


def _add_create(commands: Subparsers) -> None:
    lines = (
        "fairnotice token create root --role admin --store sqlite:/var/lib/fairnotice/fleet.db",
        "fairnotice token create ann --role operator --expires-days 90 --output ann.token",
        "fairnotice token create shop --role operator --scope availability-set:web",
        "fairnotice token create db-identity --role operator --vm db --scope vm:db",
        "fairnotice token create endpoint-7 --role endpoint --node node-7 --output 7.token",
    )
    summary = "make a token: its secret is printed this once, alone on standard output"
    create = leaf(commands, "create", _create, summary, lines)
    create.add_argument("name", type=some_name, metavar="NAME", help="who asks with it; given once")
    roles = tuple(map(str, TokenRole))
    create.add_argument(
        "--role", required=True, choices=roles, metavar="ROLE", help=" ".join(roles)
    )
    create.add_argument(
        "--scope",
        action="append",
        default=[],
        metavar="SCOPE",
        help="only what is in this scope; again for more",
    )
    create.add_argument(
        "--resource-group",
        action="append",
        default=[],
        metavar="GROUP",
        help="only what is in this resource group; again for more",
    )
    create.add_argument("--node", metavar="NODE", help="of an endpoint: the node that it serves")
    create.add_argument(
        "--vm",
        metavar="VM",
        help="the managed identity of this VM: no secret, and limits only by --scope",
    )
    create.add_argument("--expires-days", type=_days, metavar="90", help="counts so long")
    create.add_argument(
        "--output", metavar="FILE", help="write the secret there, for its owner only; a new file"
    )
    _add_store(create)


def _add_store(parser: argparse.ArgumentParser) -> None:
    what = "straight in this store, without asking a control plane"
    store_options(parser, "straight_in", what)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days < float("inf"):
        raise argparse.ArgumentTypeError(f"give a number of days, not {text!r}")
    return days


@contextmanager
def _opened(url: str) -> Iterator[Store]:
    if url == "memory:":
        raise CommandFailed("A store in memory is another process's.", exits.WRONG_USAGE)
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def _shown(token: Token, *, vm_gone: bool = False) -> dict[str, Any]:
    """A token as the API shows it."""
    return {**msgspec.to_builtins(tokens.shown(token)), "vm_gone": vm_gone}


# ---- Making ----


def _create(session: Session) -> int:
    options = session.options
    wanted = tokens.Wanted(
        options.name,
        TokenRole(options.role),
        tuple(options.scope),
        tuple(options.resource_group),
        options.node,
        options.expires_days,
        options.vm,
    )
    if options.vm is not None and options.output is not None:
        raise UsageError("The identity of a VM has no secret to write to --output.")
    if options.output is None:
        return session.show(_made(session, wanted), partial(_say_created, session))
    with new_file(Path(options.output), "no token is made") as file:
        made = _made(session, wanted)
        if not write_or_print(made.pop("secret"), file, options.output):
            return exits.REFUSED
    return session.show(made, partial(_say_kept, session))


def _made(session: Session, wanted: tokens.Wanted) -> dict[str, Any]:
    """The token as the API shows it, and its secret."""
    straight_in = session.options.straight_in
    if straight_in is not None:
        return _created_in(straight_in, tokens.make(wanted, STRAIGHT, session.clock.wall()))
    body = {name: value for name, value in wanted._asdict().items() if value}
    return dict(session.remote.post("v1", "tokens", body=body))


def _created_in(url: str, made: tokens.Made) -> dict[str, Any]:
    with _opened(url) as store:
        warnings = straight.add(store, made)
    return {"token": _shown(made.token), "secret": made.text, "warnings": warnings}


def _say_created(session: Session, made: dict[str, Any]) -> None:
    vm = made["token"]["vm"]
    if vm is not None:
        shown.note(f"{_counts(session, made)}. {vm} signs in as it: az login --identity")
        _say_doubts(made)
        return
    # Alone on standard output, and as it is: so that it can be sent into a file.
    print(made["secret"])
    shown.note(f"{_counts(session, made)}. It is not shown again: keep it safe.")
    shown.note(_use(made, "FAIRNOTICE_TOKEN=… fairnotice …"))
    _say_doubts(made)


def _say_kept(session: Session, made: dict[str, Any]) -> None:
    file = session.options.output
    shown.say(f"{file}: {_counts(session, made)}. {_use(made, f'FAIRNOTICE_TOKEN=$(cat {file})')}")
    _say_doubts(made)


def _use(made: dict[str, Any], by_a_person: str) -> str:
    """What is to be done with its secret."""
    token = made["token"]
    if token["role"] == TokenRole.ENDPOINT:
        return f"It goes on {token['node'] or 'its node'}: the token_file of its endpoint.toml"
    return f"Use it: {by_a_person}"


def _say_doubts(made: dict[str, Any]) -> None:
    for warning in made["warnings"]:
        shown.note(warning)


def _counts(session: Session, made: dict[str, Any]) -> str:
    """Whose token it is, and for how long."""
    token = made["token"]
    until = shown.when(token["expires_at"], session.clock.wall())
    counts = f"counts until {until}" if until else "counts until it is revoked"
    return f"{token['name']}, {token['role']}, {counts}"


# ---- Looking and revoking ----


def _list(session: Session) -> int:
    if session.options.straight_in is None:
        found = session.remote.everything("tokens")
    else:
        with _opened(session.options.straight_in) as store:
            every = store.tokens().tokens
            gone = straight.outlived(store, every)
        found = {"items": [_shown(one, vm_gone=one.id in gone) for one in every], "next": None}
    return session.show(found, partial(_picture, session))


def _picture(session: Session, found: dict[str, Any]) -> None:
    if not found["items"]:
        shown.say(shown.dim("There is no token. Make one: fairnotice token create"))
        return
    now = session.clock.wall()
    rows = (
        (
            token["name"],
            token["role"],
            _limits(token),
            # As whom a VM signs in limits nothing: that is for scopes and resource groups.
            token["vm"] or "",
            shown.when(token["expires_at"], now) or "never",
            _state(token, session),
            token["id"],
        )
        for token in found["items"]
    )
    shown.say(shown.table(COLUMNS, rows))


def _limits(token: dict[str, Any]) -> str:
    node = () if token["node"] is None else (token["node"],)
    return ", ".join((*token["scopes"], *token["resource_groups"], *node)) or "none"


def _state(token: dict[str, Any], session: Session) -> str:
    if token["revoked_at"] is not None:
        return "revoked"
    if token["vm_gone"]:
        return "VM gone"
    ends = token["expires_at"]
    over = ends is not None and from_api(ends) <= session.clock.wall()
    return "expired" if over else "counts"


def _revoke(session: Session) -> int:
    name = session.options.name
    if session.options.straight_in is None:
        token = session.remote.post("v1", "tokens", name, "revoke")
    else:
        token = _revoked_in(session.options.straight_in, name, session)
    return session.show(token, lambda _: shown.say(f"Revoked: {token['name']} ({token['id']})"))


def _revoked_in(url: str, name: str, session: Session) -> dict[str, Any]:
    with _opened(url) as store:
        token = straight.revoke(store, name, session.clock.wall())
    if token is None:
        raise CommandFailed(f"There is no token {name}.", exits.NOT_FOUND)
    return _shown(token)
