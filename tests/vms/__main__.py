"""`make demo-vms`: a real VM, walked through every impact, on a machine that stays as it was."""

import sys
from pathlib import Path

from tests.vms.nodes import CLOCK, Nodes, missing
from tests.vms.tidy import NAMESPACE, tidily


def main() -> int:
    """Walk, and say what was seen."""
    lacking = missing()
    if lacking:
        print(f"This cannot be shown here. {lacking}", file=sys.stderr)
        return 1
    return tidily(_walked)


def _walked(folder: Path) -> int:
    from tests.vms.cloud import Cloud  # noqa: PLC0415 - it needs libvirt's library
    from tests.vms.guest import CACHE, MissingForGuest, guest  # noqa: PLC0415
    from tests.vms.walk import ADDRESS, VM, walk  # noqa: PLC0415

    both = Nodes(folder)
    both.take_turn()
    began = CLOCK.monotonic()
    try:
        guest()
    except MissingForGuest as error:
        print(f"This cannot be shown here. {error}", file=sys.stderr)
        return 1
    print("Two libvirtd are two nodes, in a network namespace of their own ...", flush=True)
    (folder / NAMESPACE).write_text(both.network.name)
    with both as nodes, Cloud(nodes) as cloud:
        cloud.run_vm(VM, ADDRESS)
        print(f"{VM} has booted on n1, by boot id {cloud.boots(VM)[-1][:8]}", flush=True)
        cloud.start()
        cloud.declare()
        print("Each impact is announced to it first; it approves at once, which ends the notice.")
        for proof in walk(cloud):
            print("\n".join(proof.lines()), flush=True)
    seconds = CLOCK.monotonic() - began
    print(f"All of it in {seconds:.0f} s, after setting up.")
    print(f"What is left of it is the guest in {CACHE}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
