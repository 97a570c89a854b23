"""`fairnotice record` and `fairnotice replay`, as a person types them, without any extra."""

import json
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from fairnotice.cli import main
from fairnotice.testing.recordings.recording import Recording
from tests.cli.typed import PATIENCE_SECONDS, environment, typed
from tests.testing.taped import EMPTY, ID, POLL, answer, answering, document, http, taped

# What a VM has: the standard library and us.
BARE = """
import sys
for name in ("rich", "msgspec", "starlette", "uvicorn", "uvloop", "httptools", "psycopg"):
    sys.modules[name] = None
from fairnotice.cli.main import command
sys.exit(command())
"""
FREE = ("--listen", "127.0.0.1:0")


@contextmanager
def running(*words):
    """A command that runs until it is ended."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", BARE, *words],
        env=environment(None),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process, number=signal.SIGINT):
    """End it politely: its code, and the rest of what it said."""
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def served(process):
    """Where a replay serves, once it does."""
    while line := process.stdout.readline():
        if "serving" in line:
            return line.split()[1].removesuffix("/metadata/scheduledevents")
    raise AssertionError(process.stderr.read())


def asked(url, body=None):
    """What a client is answered: the status and the body."""
    headers = {"Metadata": "true"}
    request = urllib.request.Request(url + POLL.target, body, headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request) as found:  # noqa: S310
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_recording_that_is_ended_is_whole_and_can_be_replayed(tmp_path, number):
    """It goes on after errors, says what changed, and is for its owner alone."""
    path = tmp_path / "a.jsonl"
    words = ("record", "--output", str(path), "--every", "0.02", "--replace", "web-0=vm-a")
    with (
        answering(http(EMPTY), b"", http(document())) as url,
        running(*words, "--url", url) as process,
    ):
        while f"{len(document())} bytes" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        code, out, err = ended(process, number)
    assert (code, err) == (0, "")
    assert f"Serve it with: fairnotice replay {path}" in out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    recording = Recording(path)
    first, second, third, *_ = recording.exchanges()
    assert not recording.cut_off
    assert (first.answer.body, second.answer.failure) == (EMPTY, "dropped")
    assert third.answer.body == document(Resources=["vm-a"])

    with running("replay", str(path), *FREE, "--speed", "step") as process:
        url = served(process)
        assert asked(url) == (200, EMPTY)
        with pytest.raises(OSError, match="closed"):
            asked(url)
        assert asked(url) == (200, document(Resources=["vm-a"]))
        approval = json.dumps({"StartRequests": [{"EventId": ID}]}).encode()
        assert asked(url, approval) == (200, b"")
        code, out, err = ended(process, number)
    assert (code, err) == (0, "")
    assert "no answer, dropped" in out
    assert f"200, approves {ID}" in out
    assert "4 requests (3 of 200, 1 of dropped); 1 events approved.\n" in out


def test_it_ends_by_itself(tmp_path):
    """--for; --anonymise and --only-changes are obeyed."""
    with answering(http(document())) as url:
        ends = typed(
            *("record", "--output", str(tmp_path / "a"), "--url", url, "--every", "30"),
            *("--for", "1s", "--anonymise", "--only-changes"),
        )
    assert (ends.code, ends.err) == (0, "")
    written = (tmp_path / "a").read_text()
    assert ("web-0" in written, "vm-1" in written) == (False, True)
    assert len(written.splitlines()) == 3


def test_a_client_is_recorded(tmp_path):
    """--listen passes on what is asked."""
    path = tmp_path / "a"
    with (
        answering(http(EMPTY), http(b"")) as url,
        running("record", "--output", str(path), "--url", url, *FREE) as process,
    ):
        here = process.stdout.readline().split()[5]
        assert asked(here) == (200, EMPTY)
        assert asked(here, b"{}") == (200, b"")
        assert ended(process)[0] == 0
    assert [one.asked.method for one in Recording(path).exchanges()] == ["GET", "POST"]


def test_a_program_reads_json(tmp_path):
    """A line per request, and when the recording is over."""
    path = taped(tmp_path / "a", (0.0, answer(EMPTY)))
    with running("replay", str(path), *FREE, "--json", "--speed", "step") as process:
        first = json.loads(process.stdout.readline())
        assert first["answers"] == 1
        asked(first["replay"])
        rows = [json.loads(process.stdout.readline()) for _ in range(2)]
        code, out, _ = ended(process)
    assert {"over": True} in rows
    (told,) = [row for row in rows if "over" not in row]
    assert (told["status"], told["method"], told["peer"]) == (200, "GET", "127.0.0.1")
    assert (code, json.loads(out)) == (0, {"answered": {"200": 1}, "approved": []})


def test_a_cut_off_line_is_said(tmp_path):
    """And the rest is served."""
    path = taped(tmp_path / "a", (0.0, answer(EMPTY)))
    path.write_bytes(path.read_bytes() + b'{"at":1.0,"to')
    with running("replay", str(path), *FREE) as process:
        assert asked(served(process)) == (200, EMPTY)
        _, _, err = ended(process)
    assert err == "The last line of the recording is cut off; it is left out.\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("record",), "required: --output"),
        (("record", "--output", "/no/such/a"), "/no/such/a cannot be written: No such file"),
        (("record", "--output", "/etc/passwd"), "/etc/passwd is there already"),
        (("record", "--output", "{a}", "--url", "https://a"), "Give http://HOST:PORT"),
        (("record", "--output", "{a}", "--every", "0"), "is no pause; give seconds"),
        (("record", "--output", "{a}", "--replace", "web-0"), "give OLD=NEW"),
        (("record", "--output", "{a}", "--replace", '=a"'), "give OLD=NEW"),
        (("record", "--output", "{a}", "--for", "ever"), "is no length of time"),
        (("record", "--output", "{a}", "--listen", "here"), "give HOST:PORT"),
        (
            ("record", "--output", "{a}", "--listen", "127.0.0.1:{port}"),
            "Address already in use",
        ),
        (("replay",), "required: FILE"),
        (("replay", "/no/such/file"), "/no/such/file cannot be read: No such file"),
        (("replay", "/etc/passwd"), "/etc/passwd is no recording of fairnotice"),
        (("replay", "{tape}", "--speed", "fast"), "give 1, 60 or 0.5, or step"),
        (("replay", "{tape}", "--listen", "127.0.0.1:{port}"), "Address already in use"),
        (("replay", "{tape}", "--from", "1d"), "The recording is 0 s long"),
    ],
)
def test_wrong_usage_is_said_in_a_line(tmp_path, capsys, words, told):
    """And nothing is written or served."""
    tape = taped(tmp_path / "tape", (0.0, answer(EMPTY)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        places = {"a": tmp_path / "a", "tape": tape, "port": port}
        try:
            code = main.main([word.format(**places) for word in words])
        except SystemExit as ends:
            code = ends.code
    said = capsys.readouterr()

    assert (code, said.out) == (2, "")
    assert told in said.err
    assert len(said.err.splitlines()) == 1
    assert not (tmp_path / "a").exists()
