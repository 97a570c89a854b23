"""What is said of VMs and sets that means nothing to the law: kept, and forgotten with them."""

from fairnotice.engine.changes import PropertiesForgotten, PropertiesKept
from fairnotice.engine.draft import Draft
from fairnotice.model import Kept
from fairnotice.words import ScopeKind

NOTHING = "{}"


def kept_name(kind: ScopeKind, of: str) -> str:
    """Under what it is kept: `vm:db`, `availability-set:web`, `scale-set:batch`."""
    return f"{kind}:{of}"


def keep(draft: Draft, resource: str, body: str) -> None:
    """Give this back from now on; nothing is kept of nothing."""
    before = draft.kept.get(resource)
    if body == NOTHING:
        forget_kept(draft, resource)
    elif before is None or before.body != body:
        draft.record(PropertiesKept(draft.now, Kept(resource, body)))


def forget_kept(draft: Draft, resource: str) -> None:
    """Whatever was said of it is forgotten."""
    before = draft.kept.get(resource)
    if before is not None:
        draft.record(PropertiesForgotten(draft.now, before))
