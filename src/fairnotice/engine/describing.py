"""Rules 2, 14 and 18, by Azure's tools: what is said of one VM or set, and more instances of one.

A tool that changes a scale set reads all of it, changes a part and sends all of it back. So what it
says is one command, which may name what was read; what has changed in between is not overwritten.
"""

from collections import Counter
from collections.abc import Iterator

from fairnotice.engine.announce import guid
from fairnotice.engine.answers import Accepted
from fairnotice.engine.commands import Describe, ScaleOut, SetPolicy, SetTerminateNotice
from fairnotice.engine.draft import Draft
from fairnotice.engine.fleet_changes import (
    UPDATE_DOMAINS,
    declare_vm,
    set_policy,
    set_terminate_notice,
)
from fairnotice.engine.keeping import keep
from fairnotice.engine.refusal import Code, misfit, refuse
from fairnotice.engine.removing import staying
from fairnotice.engine.tables import Tables
from fairnotice.model import ScaleSet, Scope, Vm, scope_name
from fairnotice.words import EventType, ScopeKind


def version(tables: Tables, resource: str) -> str:
    """Changes with whatever can be said of a VM or a set, and with nothing else.

    So with the number of instances, by which some are deleted; and with a VM's tags, which whoever
    says others takes away, wherever they were said.
    """
    scope = _scope(tables, resource)
    policy = () if scope is None else scope.automatically_approve
    kind, _, name = resource.partition(":")
    scale_set = tables.scale_sets.get(name) if kind == ScopeKind.PLACEMENT_GROUP else None
    count = None if scale_set is None else len(staying(tables, scale_set))
    vm = tables.vms.get(name) if kind == ScopeKind.STANDALONE else None
    tags = None if vm is None else vm.tags
    return guid(repr((resource, tables.kept.get(resource), policy, scale_set, count, tags)))


def must_be_as_read(tables: Tables, resource: str, expected: str | None) -> None:
    """Refused where somebody else has changed it since; None where who asks did not look."""
    if expected is not None and expected != version(tables, resource):
        why = f"{resource} was changed by somebody else in between."
        refuse(Code.CHANGED, why, "Read it anew, and try again.")


def describe(draft: Draft, command: Describe) -> Accepted:
    """Take all that is said, or nothing."""
    _must_be_there(draft, command.resource)
    must_be_as_read(draft, command.resource, command.expected)
    if command.automatically_approve is not None:
        _approve(draft, command.resource, command.automatically_approve)
    if command.terminate_notice is not None:
        name = command.resource.partition(":")[2]
        minutes = command.terminate_notice.minutes
        set_terminate_notice(draft, SetTerminateNotice(scale_set=name, minutes=minutes))
    keep(draft, command.resource, command.kept)
    return Accepted()


def _must_be_there(draft: Draft, resource: str) -> None:
    kind, _, name = resource.partition(":")
    there = {
        str(ScopeKind.STANDALONE): name in draft.vms,
        str(ScopeKind.PLACEMENT_GROUP): name in draft.scale_sets,
        str(ScopeKind.AVAILABILITY_SET): resource in draft.scopes,
    }
    if not there.get(kind):
        refuse(Code.NOT_FOUND, f"There is no {resource}.", "List what there is.")


def _approve(draft: Draft, resource: str, policy: tuple[EventType, ...]) -> None:
    scope = _scope(draft, resource)
    if scope is None:
        misfit(
            "automatically_approve",
            f"{resource} shares its events with others.",
            "Say it of the set that it is in.",
            rule=18,
        )
    set_policy(draft, SetPolicy(scope=scope.name, automatically_approve=policy))


def _scope(tables: Tables, resource: str) -> Scope | None:
    """The scope that this is, or the first one of a scale set; None for a VM that is in a set."""
    in_groups = resource.startswith(f"{ScopeKind.PLACEMENT_GROUP}:")
    return tables.scopes.get(f"{resource}:0" if in_groups else resource)


# ---- More instances ----


def scale_out(draft: Draft, command: ScaleOut) -> Accepted:
    """An instance for each of these addresses, with names of their own, placed by the law."""
    row = draft.scale_sets.get(command.scale_set)
    if row is None:
        refuse(
            Code.NOT_FOUND, f"There is no scale set {command.scale_set}.", "List the scale sets."
        )
    _must_be_free(draft, command.addresses)
    for vm in _instances(draft, row, command.addresses):
        declare_vm(draft, None, vm)
    return Accepted()


def _must_be_free(draft: Draft, addresses: tuple[str, ...]) -> None:
    taken = {one for one, count in Counter(addresses).items() if count > 1}
    wanted = set(addresses)
    for vm in draft.vms.values():
        taken |= wanted.intersection(vm.addresses)
    for address in addresses:
        if address in taken:
            refuse(Code.CONFLICT, f"{address} is taken.", "Choose another address.", rule=21)


def _instances(draft: Draft, row: ScaleSet, addresses: tuple[str, ...]) -> Iterator[Vm]:
    """One for each address, behind those that there are; each is declared before the next one."""
    kind = ScopeKind.PLACEMENT_GROUP
    scopes = [scope_name(kind, row.name, group) for group in range(row.placement_groups)]
    names = [name for scope in scopes for name in draft.vms_in_scope.get(scope, ())]
    number = _next_number(row.name, names)
    for count, address in enumerate(addresses, len(names)):
        # No VM that is called like an instance.
        while f"{row.name}_{number}" in draft.vms:
            number += 1
        yield Vm(
            name=f"{row.name}_{number}",
            scope=min(scopes, key=lambda scope: len(draft.vms_in_scope.get(scope, ()))),
            node=None,
            update_domain=count % UPDATE_DOMAINS,
            priority=row.priority,
            addresses=(address,),
            resource_group=row.resource_group,
        )


def _next_number(scale_set: str, names: list[str]) -> int:
    """Behind those of all instances."""
    numbers = [name.removeprefix(f"{scale_set}_") for name in names]
    return 1 + max((int(one) for one in numbers if one.isascii() and one.isdecimal()), default=-1)
