"""A rollout over three update domains, with an agent on each VM, and where one never looks."""

from contextlib import ExitStack
from itertools import pairwise

import pytest

from fairnotice.testing import Cloud
from tests.agent.agents import Home, thread, watching

NODES = ("node-0", "node-1", "node-2")
# Whose VM is on the node, of the set that all three are in.
VMS = {"node-0": "web-0", "node-1": "web-1", "node-2": "web-2"}


def of_web(cloud, vm):
    """The event that names this VM, once it is announced."""

    def announced():
        return next((event for event in cloud.events if event.resources == [vm]), None)

    while announced() is None:
        cloud.advance(minutes=1)
    return announced()


@pytest.mark.parametrize("deaf", [None, "web-1"])
def test_one_vm_after_the_other_is_prepared_and_comes_back(tmp_path, deaf):
    """Each by its own agent; one that never looks is hit when its notice is over, and no sooner."""
    homes = {vm: Home(tmp_path / vm) for vm in VMS.values() if vm != deaf}
    with Cloud() as cloud, ExitStack() as stack:
        for vm, home in homes.items():
            stack.enter_context(thread(home, cloud.url_for(vm)))
            watching(home, cloud)
        rollout = cloud.rollout(list(NODES), impact="reboot")
        came = []
        for vm in VMS.values():
            event = of_web(cloud, vm)
            if vm in homes:
                cloud.wait_until(lambda event=event, vm=vm: event.approved_by == vm)
            cloud.run_until(event, "Completed")
            came.append(event.look())
            if vm in homes:
                cloud.wait_until(lambda vm=vm: homes[vm].over)
        cloud.advance(hours=12)
        assert rollout.look().done_count == len(NODES)
    for earlier, later in pairwise(came):
        assert later.started_at > earlier.gone_at
    for vm, event in zip(VMS.values(), came, strict=True):
        if vm == deaf:
            assert (event.approvals, event.started_at) == ([], event.not_before)
        else:
            assert homes[vm].wrote == ["prepare one", "prepare two", "recover two", "recover one"]
