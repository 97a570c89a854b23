"""What has been left half done, and is asked for by nobody: whoever looks at the nodes ends it.

The law gives an impact up at its limit, also where its node could not be asked for as long. When
that answers again, its VM may still be off, or paused, only because we have begun something there;
or it runs, and its node does not start it by itself any more.
"""

from collections.abc import Callable, Mapping
from datetime import datetime

from fairnotice.drivers.libvirt import records
from fairnotice.drivers.libvirt.host import Sight
from fairnotice.drivers.libvirt.pauses import PAUSING
from fairnotice.drivers.libvirt.records import Record

# In these phases of a reboot or a move it is we who have switched a VM off.
SWITCHED_OFF = (
    records.ASKING,
    records.RESETTING,
    records.RESET,
    records.LEAVING,
    records.STAYING,
    records.MOVING,
    records.RETURNING,
)


def forgotten(
    places: Mapping[str, Sight],
    since: datetime,
    is_late: Callable[[Record], bool],
    *,
    whole: bool,
) -> Record | None:
    """The impact that this VM was left in the middle of; None where there is none.

    One that would have ended before `since` is none: by then somebody else has paused the VM, or
    switched it off. That it is off is certain only where every node was asked (`whole`). While it
    runs, what has only begun may be asked for until it is late; then it can do no more than end.
    """
    written = [record for sight in places.values() for record in sight.records]
    ended = {record.key for record in written if record.ended}
    recent = [one for one in written if max(one.until, one.limit_at) >= since]
    left = [one for one in recent if one.key not in ended]
    running = [sight for sight in places.values() if sight.active]
    if running:
        return _left_running(running, left, is_late)
    # Only the latest decides whether it should run.
    latest = max((one.begun_at for one in written), default=None)
    off = [one for one in left if one.begun_at == latest and one.phase in SWITCHED_OFF]
    return off[-1] if off and whole else None


def _left_running(
    running: list[Sight], left: list[Record], is_late: Callable[[Record], bool]
) -> Record | None:
    """Of each domain that runs the latest of these that it was left in."""
    for sight in running:
        for record in sorted(sight.records, key=lambda one: one.begun_at, reverse=True):
            if record in left and (_is_left(sight, record) or _is_held(sight, record, is_late)):
                return record
    return None


def _is_left(sight: Sight, record: Record) -> bool:
    """Whether this has paused what runs; or has done all but to write that it has ended.

    Of the latter nothing is missed, but it would be held to have paused what somebody else pauses;
    or its node does not start the VM by itself any more, which was held back while it moved.
    """
    if sight.paused:
        return record.phase in PAUSING
    rebooted = record.phase == records.ASKING and not sight.is_marked(record.key)
    return rebooted or record.phase in (
        records.FROZEN,
        records.RESET,
        records.HANDED_OVER,
    )


def _is_held(sight: Sight, record: Record, is_late: Callable[[Record], bool]) -> bool:
    """Whether what runs is not as its owner has it, until this has ended; and nobody asks for that.

    Its node does not start it, or libvirt does not restart it; or who pauses it would be undone.
    """
    if sight.paused or not is_late(record):
        return False
    return (
        record.autostart
        or record.phase in PAUSING
        or sight.is_marked(record.key)
        or bool(records.elements(sight.xml, records.POWEROFF))
    )
