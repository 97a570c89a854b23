"""The programs of docs/guides/client.md do what the page says, in a cloud."""

import asyncio
import re
import threading

import pytest

from fairnotice import errors
from fairnotice.client import Position, ScheduledEvents, pace
from tests.house import ROOT

PAGE = (ROOT / "docs" / "guides" / "client.md").read_text("utf-8")
THREADS, ASYNCIO = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class Over(Exception):
    pass


@pytest.fixture
def restarted(cloud, monkeypatch):
    """A VM that is being restarted, and is as soon as somebody approves."""
    monkeypatch.setenv("FAIRNOTICE_METADATA_URL", cloud.url_for("web-0"))
    event = cloud.vm("web-0").restart()

    def go_on():
        cloud.wait_until(lambda: cloud.approvals)
        cloud.run_until(event, "Completed")

    thread = threading.Thread(target=go_on)
    thread.start()
    yield event
    thread.join()


def test_the_program_with_a_saved_position(restarted, tmp_path, monkeypatch):
    """It prepares within the notice, approves, and recovers; the position it left goes on there."""
    monkeypatch.chdir(tmp_path)
    told = []

    def recover(event):
        told.append(event.id)
        raise Over

    names = {"prepare": lambda event, left: told.append(0 < left <= 900), "recover": recover}
    with pytest.raises(Over):
        exec(compile(THREADS, "client.md", "exec"), names)  # noqa: S102 - our own page
    assert told == [True, restarted.id]
    assert restarted.approved_by == "web-0"

    # It was ended before it had saved that it recovered: it is told so again.
    since = Position.from_json((tmp_path / "position.json").read_text())
    assert next(ScheduledEvents().watch(since)).kind == "gone"


def test_the_program_with_a_loop(restarted):
    """It approves, and ends when that is over."""
    names = {}
    exec(compile(ASYNCIO, "client.md", "exec"), names)  # noqa: S102 - our own page
    asyncio.run(names["approve_own"]())
    assert restarted.approved_by == "web-0"


def test_the_numbers_and_errors_of_the_page():
    """They are those of the code."""
    for said in (
        f"one request in {pace.WAIT_SECONDS} s",
        f"it waits for {pace.FIRST_ANSWER_SECONDS:g} s",
        f"later answers may take {pace.ANSWER_SECONDS:g} s",
        f"never longer than {pace.BACKOFF_SECONDS_MAX:g} s",
        f"kept up to {pace.RETRY_AFTER_SECONDS_MAX:g} s",
    ):
        assert said in PAGE
    assert pace.EMPTY_MEANS_NONE_SECONDS == 5 * 60
    for error in errors.ClientError.__subclasses__():
        assert f"| `{error.__name__}` |" in PAGE
