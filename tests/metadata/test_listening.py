"""Places that cannot be listened on."""

from pathlib import Path

import pytest

from fairnotice.metadata.identity import Door
from tests.metadata.sockets import endpoint, on_sockets


def descriptors_count() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_place_that_cannot_be_listened_on_costs_no_descriptor(tmp_path):
    """Whoever tries again and again runs out of nothing."""

    async def story():
        async with endpoint() as served:
            port = served.server.listeners[0].port
            before = descriptors_count()
            kept = []
            for listen in (
                lambda: served.server.listen("127.0.0.1", port, Door()),
                lambda: served.server.listen_unix(str(tmp_path / "no" / "db"), "db"),
            ):
                with pytest.raises(OSError, match=r"in use|No such") as refused:
                    listen()
                # What the traceback holds is not collected behind our back.
                kept.append(refused)
            assert descriptors_count() == before

    on_sockets(story)
