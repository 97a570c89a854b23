"""What is said of an address that is not here: which part of it is not."""

from fairnotice.arm.failures import Failure, no_namespace
from fairnotice.arm.paths import segments
from fairnotice.arm.routes import ROUTES

DECLARED = "VMs are declared in the fleet file (fairnotice fleet apply), and nothing is chosen here"
PROVIDERS = "providers"


def no_address(path: str) -> Failure:
    """The refusal of a path that no route has."""
    namespace, kind = _kind(path)
    if not namespace:
        return Failure(404, "NotFound", f"There is nothing at {path}.")
    if namespace.lower() not in _NAMESPACES:
        return no_namespace(f"{namespace}/{kind}".rstrip("/"))
    why = "is not here"
    if kind.lower().startswith("locations/"):
        # `az vm create` asks there first: for images, sizes, and what else can be chosen.
        why = f"is not here: {DECLARED}"
    elif (namespace.lower(), kind.lower()) in _KINDS:
        why = "is here, but not at this address"
    message = f"The resource type '{kind}' of '{namespace}' {why}."
    return Failure(404, "InvalidResourceType", message)


def _kind(path: str) -> tuple[str, str]:
    """The namespace of an address, and the type of what is asked for, with all it is part of."""
    parts = segments(path)
    low = [part.lower() for part in parts]
    if PROVIDERS not in low:
        return "", ""
    # The last one: a resource of one provider may be asked for what another has of it.
    after = len(low) - low[::-1].index(PROVIDERS)
    return "".join(parts[after : after + 1]), "/".join(parts[after + 1 :: 2])


_KINDS = frozenset((name.lower(), kind.lower()) for name, kind in (_kind(r.path) for r in ROUTES))
_NAMESPACES = frozenset(name for name, kind in _KINDS if kind)
