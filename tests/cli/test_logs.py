"""What `up` writes on standard error, for people and for programs."""

import json
import logging
import signal
import sqlite3
import subprocess
import sys

import pytest

from fairnotice.cli.logs import FORMATS, JsonFormatter
from tests.cli.test_up import control, lines, shell, started


def failure():
    """What the log is handed of an exception."""
    try:
        int("x")
    except ValueError:
        return sys.exc_info()


@pytest.mark.parametrize("form", FORMATS)
def test_warnings_are_logged_and_chatter_is_not(form):
    """On standard error, in either format."""
    program = (
        "import logging; from fairnotice.cli.logs import log_to_standard_error as begin; "
        f"begin({form!r}); logging.info('chatter'); logging.warning('mind this')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)  # noqa: S603, PLW1510

    assert (done.returncode, done.stdout) == (0, "")
    assert "mind this" in done.stderr
    assert "chatter" not in done.stderr


@pytest.mark.parametrize("trouble", [None, failure()])
def test_a_record_is_an_object_on_one_line(trouble):
    """With the traceback inside where there is one."""
    record = logging.LogRecord("a.b", logging.ERROR, "x.py", 1, "%s\nfell", ("it",), trouble)
    record.created = 1_750_000_000.5
    line = JsonFormatter().format(record)

    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("exception", "").endswith("'x'") == (trouble is not None)
    assert found == {
        "time": "2025-06-15T15:06:40.500+00:00",
        "level": "ERROR",
        "logger": "a.b",
        "message": "it\nfell",
    }


def test_up_logs_in_json_where_that_is_asked_for(tmp_path):
    """The store takes nothing: said in an object that a program reads."""
    with started(tmp_path, "--log-format", "json") as (process, said):
        place = next(tmp_path.rglob("up.db"))
        with sqlite3.connect(place, isolation_level=None) as greedy:
            greedy.execute("DROP TABLE journal")
        shell(lines(said)[0])
        shell(f"curl -s -X POST {control(said)}/v1/vms/db/stop")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=5)
        written = process.stderr.read().splitlines()

    assert written
    for line in written:
        assert json.loads(line).keys() >= {"time", "level", "logger", "message"}
