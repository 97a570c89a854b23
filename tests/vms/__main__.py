"""`make demo-vms`: a real VM, walked through every impact, on a machine that stays as it was."""

import sys
import tempfile
from pathlib import Path

from tests.vms.nodes import CLOCK, Nodes, missing


def main() -> int:
    """Walk, and say what was seen."""
    lacking = missing()
    if lacking:
        print(f"This cannot be shown here. {lacking}", file=sys.stderr)
        return 1
    from tests.vms.cloud import Cloud  # noqa: PLC0415 - it needs libvirt's library
    from tests.vms.guest import CACHE, MissingForGuest  # noqa: PLC0415
    from tests.vms.walk import ADDRESS, VM, walk  # noqa: PLC0415

    began = CLOCK.monotonic()
    print("Two libvirtd are two nodes, in a network namespace of their own ...")
    with (
        tempfile.TemporaryDirectory() as folder,
        Nodes(Path(folder)) as nodes,
        Cloud(nodes) as cloud,
    ):
        try:
            cloud.run_vm(VM, ADDRESS)
        except MissingForGuest as error:
            print(f"This cannot be shown here. {error}", file=sys.stderr)
            return 1
        print(f"{VM} has booted on n1, by boot id {cloud.boots(VM)[-1]}")
        cloud.start()
        cloud.declare()
        for proof in walk(cloud):
            print(f"{proof.what:>15}: event {proof.event}, approved from inside the VM,")
            print(f"{'':>15}  done {proof.seconds:.1f} s after it was asked for: {proof.proof}")
    seconds = CLOCK.monotonic() - began
    print(f"All of it in {seconds:.0f} s. What is left of it is the guest in {CACHE}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
