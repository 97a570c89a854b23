"""The life of a cloud: beside others, closed, forgotten, forked."""

import gc
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from urllib.error import URLError

import pytest

from fairnotice.errors import UsageError
from fairnotice.testing import Cloud
from tests.testing.asking import get

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def cloud():
    """The sample fleet, on New Year's Day."""
    with Cloud(start=NEW_YEAR) as it:
        yield it


def test_clouds_do_not_know_of_each_other(cloud):
    """Each has its own fleet, its own ports and its own clock."""
    with Cloud(start=NEW_YEAR) as other:
        assert other.url_for("web-0") != cloud.url_for("web-0")
        other.vm("web-0").restart()
        other.advance(hours=1)
        assert get(cloud.url_for("web-0")) == (
            {"DocumentIncarnation": 1, "Events": []},
            "Fri, 01 Jan 2027 00:00:00 GMT",
        )
        url = other.url_for("web-0")
    other.close()
    with pytest.raises(URLError):
        get(url)


def test_a_closed_cloud_is_closed(cloud):
    """Whatever is asked of it is refused, and whoever asked for it gets no door."""
    event = cloud.vm("web-0").restart()
    cloud.close()
    for late in (lambda: cloud.url_for("web-0"), lambda: cloud.advance(minutes=1), event.look):
        with pytest.raises(UsageError, match="This cloud is closed"):
            late()
    with pytest.raises(UsageError):
        Cloud("[[vm]]\nnam = 1")


def test_nobody_waits_for_himself(cloud):
    """In the cloud's own thread, and in a process that was forked, it is said and does not hang."""
    with pytest.raises(UsageError, match="own thread"):
        cloud.inside(lambda: cloud.events)
    child = os.fork()
    if child == 0:
        try:
            cloud.advance(seconds=1)
        except UsageError:
            with Cloud() as other:
                os._exit(0 if other.vm("web-0").restart().status == "Scheduled" else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_handles_of_two_clouds_are_not_the_same(cloud):
    """They have the same names, and are of different worlds."""
    with Cloud() as other:
        assert cloud.vm("web-0") == cloud.vm("web-0")
        assert cloud.vm("web-0") != other.vm("web-0")
        assert cloud.vm("web-0") != cloud.node("node-0")


def test_clouds_leave_nothing_behind():
    """Neither threads nor open files nor memory that grows with each of them."""

    def one() -> None:
        with Cloud() as cloud:
            event = cloud.vm("web-0").restart()
            get(cloud.url_for("web-0"))
            cloud.run_until(event, "Completed")

    def left() -> tuple[int, int, int]:
        gc.collect()
        clouds = sum(isinstance(one, Cloud) for one in gc.get_objects())
        return threading.active_count(), len(os.listdir("/proc/self/fd")), clouds  # noqa: PTH208

    one()
    before = left()
    for _ in range(20):
        one()
    # Less may be left than before: what earlier tests began may have come to its end meanwhile.
    assert all(now <= then for now, then in zip(left(), before, strict=True))


def test_a_cloud_that_nobody_closed_does_not_disturb_the_end():
    """The process ends by itself, and says nothing of what was still under way."""
    script = "import gc\nfrom fairnotice.testing import Cloud\nCloud().vm('web-0').restart()\n"
    script += "gc.collect()\ncloud = Cloud()\ncloud.vm('web-0').restart()"
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-X", "dev", "-c", script], check=True, capture_output=True, timeout=60
    )
    assert (run.stdout, run.stderr) == (b"", b"")
