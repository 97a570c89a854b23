"""Tokens that are made and revoked straight in the store, by whoever has it: the first one, mostly.

Nobody is asked, and yet it is held to the same: names have to be there, and it is written down.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from fairnotice.control.limits import must_be_there
from fairnotice.control.tokens import Made, counts, of_several, taken, token_named
from fairnotice.engine import AZURE, Fleet
from fairnotice.stores.access import Audited, Token
from fairnotice.stores.store import Store

# Who did it, as the audit has it, and from where.
WHOEVER = "whoever has the store"
STRAIGHT = "straight in the store"


def add(store: Store, made: Made) -> list[str]:
    """Keep a new token; what is hardly meant with it. UsageError where it cannot be kept."""
    token, doubts = _looked_at(store, made.token)
    if not store.add_token(token):
        raise taken(token.name)
    _write_down(store, token.created_at, f"/v1/tokens/{token.name}")
    return (
        doubts if token.vm is None else [*doubts, *of_several(token, _of_the_same_vm(store, token))]
    )


def _looked_at(store: Store, token: Token) -> tuple[Token, list[str]]:
    """The token, bound to the VM that it is the identity of; and what is hardly meant with it."""
    if not (token.scopes or token.resource_groups or token.node or token.vm):
        # A fleet need not be read, which may be large.
        return token, []
    fleet = _fleet(store)
    if not fleet.nodes and token.vm is None:
        doubt = "There is no fleet yet: whether what it is limited to will be there, nobody knows."
        return token, [doubt]
    # The identity of a VM that is not there yet would be that of whichever has the name first.
    doubts = must_be_there(fleet, token.scopes, token.resource_groups, token.node, token.vm)
    if token.vm is None:
        return token, doubts
    declared = fleet.vms[token.vm].declared_revision
    return msgspec.structs.replace(token, vm_revision=declared), doubts


def _of_the_same_vm(store: Store, made: Token) -> Iterator[Token]:
    for token in store.tokens().tokens:
        is_its = (token.vm, token.vm_revision) == (made.vm, made.vm_revision)
        if is_its and counts(token, made.created_at):
            yield token


def _fleet(store: Store) -> Fleet:
    loaded = store.load()
    return Fleet.load(loaded.rows, AZURE, loaded.revision, loaded.recorded_at)


def outlived(store: Store, tokens: Iterable[Token]) -> set[str]:
    """The ids of those that are identities of VMs that are gone."""
    of_vms = [token for token in tokens if token.vm is not None]
    if not of_vms:
        return set()
    there = {(vm.name, vm.declared_revision) for vm in _fleet(store).vms.values()}
    return {token.id for token in of_vms if (token.vm, token.vm_revision) not in there}


def revoke(store: Store, name: str, now: datetime) -> Token | None:
    """Let a token, by its name or id, count no longer; as it is then, or None."""
    found = token_named(store.tokens().tokens, name)
    token = None if found is None else store.revoke_token(found.id, now)
    if token is not None:
        _write_down(store, now, f"/v1/tokens/{token.name}/revoke")
    return token


def _write_down(store: Store, at: datetime, path: str) -> None:
    line = Audited(
        at=at, token=None, name=WHOEVER, source=STRAIGHT, method="POST", path=path, status=200
    )
    store.add_audit([line])
