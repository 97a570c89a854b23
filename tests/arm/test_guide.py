"""The lines of docs/guides/azure-tools.md, without az; with it: tests/arm/test_tools.py."""

import shlex

from tests.arm.calling import SUBSCRIPTION
from tests.arm.guide import PAGE, redeploy_of


def test_the_redeploy_of_a_scale_set_is_done_on_the_sample_fleet(arm):
    """Its four instances have two free nodes: one of them moves, all of them at once do not."""
    words = shlex.split(redeploy_of(PAGE))
    given = dict(zip(words[2::2], words[3::2], strict=True))
    url = given["--url"].replace("/subscriptions/{subscriptionId}", SUBSCRIPTION)
    path, _, query = url.partition("?")
    arm.refused(409, "AllocationFailed", "POST", path, query=query)
    answer = arm.post(path, given["--body"].encode(), query=query)
    assert answer.status == 202
    arm.approve("batch_0")
    arm.until(answer, "Succeeded")
