"""Rule 14: where a VM may be put."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from fairnotice.engine.draft import Draft
from fairnotice.engine.refusal import Code, refuse
from fairnotice.engine.tables import Tables
from fairnotice.model import Node, Vm
from fairnotice.words import NodeState

# Of more nodes, or VMs, it is said how many: whoever reads why has not asked for a list.
NAMED_MAX = 3
_OF_SEVERAL = {"is": "are", "has": "have", "holds": "hold"}


def find_place(draft: Draft, vm: Vm, *, domains_may_meet: bool = False) -> str | None:
    """A node that may take this VM, other than its own; None where there is none."""
    for name in _candidates(draft):
        node = draft.nodes.get(name)
        if node is None or name == vm.node:
            continue
        if may_take(draft, node, vm, domains_may_meet=domains_may_meet):
            return name
    return None


def find_places(draft: Draft, vms: Iterable[Vm]) -> dict[str, str | None]:
    """A place for each of these VMs all at once, so that none counts on another's slot."""
    places: dict[str, str | None] = {}
    taken: dict[str, list[Vm]] = {}
    for vm in vms:
        places[vm.name] = None
        for name in _candidates(draft):
            node = draft.nodes.get(name)
            if node is None or name == vm.node:
                continue
            beside = taken.get(name, ())
            room = node.capacity - draft.used_slots(name) - len(beside)
            if room > 0 and may_take(draft, node, vm) and not _domains_meet(vm, beside):
                places[vm.name] = name
                taken.setdefault(name, []).append(vm)
                break
    return places


def must_have_places(draft: Draft, vms: Iterable[Vm]) -> None:
    """Refuse what a user asks for where one of these VMs has no place."""
    for name, place in find_places(draft, vms).items():
        if place is None:
            refuse(
                Code.NO_ROOM,
                f"No node may take {name}.",
                "Uncordon or add a node, or wait until an operation there is over.",
                rule=14,
            )


def without_place(draft: Draft, vms: Sequence[Vm]) -> list[Vm]:
    """Those of these VMs that no node may take now, all of them at once."""
    places = find_places(draft, vms)
    return [vm for vm in vms if places[vm.name] is None]


def warn_of_no_place(draft: Draft, vms: Sequence[Vm]) -> None:
    """A platform's move is announced all the same, so whoever asks for it hears why it may fail."""
    lacking = without_place(draft, vms)
    for vm in lacking[:NAMED_MAX]:
        draft.warnings.append(
            f"No node may take {vm.name} now: {why_no_place(draft, vm)}. "
            "If none may when the move starts, the move fails."
        )
    more = len(lacking) - NAMED_MAX
    if more > 0:
        draft.warnings.append(f"No node may take {more} more of its VMs now.")


def why_no_place(draft: Draft, vm: Vm) -> str:
    """Why each node may not take this VM, in words; of many nodes, how many for which reason."""
    nodes = list(draft.nodes.values())
    if len(nodes) <= NAMED_MAX:
        return "; ".join(f"{node.name} {_why_not(draft, node, vm)}" for node in nodes)
    counts = Counter(_why_not(draft, node, vm, many=True) for node in nodes)
    return "; ".join(_of_several(count, why) for why, count in counts.most_common())


def may_take(draft: Draft, node: Node, vm: Vm, *, domains_may_meet: bool = False) -> bool:
    """Whether this VM may be put on this node."""
    if why_closed(draft, node) or draft.used_slots(node.name) >= node.capacity:
        return False
    return domains_may_meet or not _domains_meet(vm, _vms_at(draft, node.name))


def why_closed(tables: Tables, node: Node) -> str:
    """Why nothing may be put on this node, in words; empty where it is open."""
    if node.state is not NodeState.IN_SERVICE:
        return f"is {node.state}"
    if node.name in tables.operations_on_node:
        return "has an operation announced or under way"
    return ""


def _why_not(draft: Draft, node: Node, vm: Vm, *, many: bool = False) -> str:
    """Why this node may not take it; told of many nodes, without what sets each apart."""
    if node.name == vm.node and node.state is not NodeState.FAILED:
        return "is where it is"
    if closed := why_closed(draft, node):
        return closed
    if draft.used_slots(node.name) >= node.capacity:
        return "is full"
    meeting = _domain_met(vm, _vms_at(draft, node.name))
    if meeting is None:
        return "is needed for another VM of this move"
    domain = "another update domain" if many else f"update domain {meeting.update_domain}"
    return f"holds {domain} of {vm.scope}"


def _of_several(count: int, why: str) -> str:
    verb, _, rest = why.partition(" ")
    return f"{count} {why if count == 1 else f'{_OF_SEVERAL[verb]} {rest}'}"


def _candidates(draft: Draft) -> Iterable[str]:
    """Nodes worth a look: those open before this decision, and those it touched."""
    return chain(draft.fleet.open_nodes, tuple(draft.touched_nodes))


def _vms_at(draft: Draft, node: str) -> list[Vm]:
    """The VMs on a node and on their way to it."""
    names = (*draft.vms_on_node.get(node, ()), *draft.arriving_on_node.get(node, ()))
    return [draft.vms[name] for name in names]


def _domains_meet(vm: Vm, others: Collection[Vm]) -> bool:
    """Whether another update domain of the VM's scope is among the others."""
    return _domain_met(vm, others) is not None


def _domain_met(vm: Vm, others: Collection[Vm]) -> Vm | None:
    """One of the others that is in another update domain of the VM's scope."""
    for other in others:
        if other.scope == vm.scope and other.update_domain != vm.update_domain:
            return other
    return None
