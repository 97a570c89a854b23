"""The file of a recording: nothing is lost, little is repeated, and what is none is refused."""

import json
from pathlib import Path

import pytest

from fairnotice.errors import UsageError
from fairnotice.testing.manual_clock import DEFAULT_START
from fairnotice.testing.recordings.recording import (
    Answer,
    Exchange,
    Failure,
    Opening,
    Recording,
    Writer,
)
from tests.testing.taped import EMPTY, POLL, answer, document, taped

STARTED = DEFAULT_START.isoformat()
FIRST = json.dumps({"fairnotice_recording": 1, "started": STARTED}) + "\n"

ODD = {
    "a document": answer(EMPTY, "Date: Thu, 01 Jan 2026 00:00:00 GMT"),
    "no body": answer(b"", status="204 No Content"),
    "an empty 200": answer(b""),
    "no UTF-8": answer(b"\xff\xfe{\x00"),
    "control characters": answer(b'{"Description":"a\x00\x1b\n\r\xe2\x80\xa8b"}'),
    "a header that is no ASCII": Answer((b"HTTP/1.1 200 OK", b"X-Owner: M\xfcller"), EMPTY),
    "headers twice": answer(EMPTY, "Set-Cookie: a", "Set-Cookie: b"),
    "cut off": Answer((b"HTTP/1.1 200 OK", b"Content-Length: 99"), b"{", Failure.DROPPED),
    "garbage": Answer((), b"\x16\x03\x01 what", Failure.GARBAGE),
    "refused": Answer(failure=Failure.REFUSED),
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_was_answered_is_read_back_to_the_byte(tmp_path, name):
    """Also when it comes again and again, and between others."""
    story = [ODD["a document"], ODD[name], ODD[name], ODD["a document"]]
    path = taped(tmp_path / "a", *((float(at), one) for at, one in enumerate(story)))

    found = list(Recording(path).exchanges())

    assert [one.answer for one in found] == story
    assert [one.at for one in found] == [0.0, 1.0, 2.0, 3.0]
    assert {one.asked for one in found} == {POLL}


def test_a_day_of_polls_is_a_few_megabytes(tmp_path):
    """What is the same is a short line: of each answer only its Date."""
    date = "Date: Thu, 01 Jan 2026 00:{:02}:{:02} GMT"
    answers = [(n + 0.1234, answer(EMPTY, date.format(n // 60, n % 60))) for n in range(3600)]
    path = taped(tmp_path / "a", *answers)

    assert path.stat().st_size * 24 < 8_000_000
    assert [one.answer for one in Recording(path).exchanges()] == [one for _, one in answers]


def test_only_changes_has_a_line_for_a_change():
    """A Date or a request id alone is none; a body, a status or a failure is."""
    writer = Writer(only_changes=True)
    story = [
        answer(EMPTY, "Date: 1", "x-ms-request-id: 1"),
        answer(EMPTY, "Date: 2", "x-ms-request-id: 2"),
        answer(document()),
        Answer(failure=Failure.DROPPED),
        Answer(failure=Failure.DROPPED),
        answer(document()),
        answer(document(), status="500 Internal Server Error"),
    ]

    lines = [writer.line(Exchange(0, 0, POLL, one)) for one in story]

    assert [bool(line) for line in lines] == [True, False, True, True, False, True, True]


def test_a_line_that_power_was_lost_in_is_left_out(tmp_path):
    """Wherever it is cut; what came before is there."""
    whole = taped(tmp_path / "a", (0.0, answer(EMPTY)), (1.0, answer(document()))).read_bytes()
    last = len(whole) - len(whole.splitlines()[-1]) - 1
    for size in range(last + 1, len(whole)):
        (tmp_path / "b").write_bytes(whole[:size])
        recording = Recording(tmp_path / "b")
        assert (recording.answers, recording.cut_off) == (1, True)
    assert not Recording(tmp_path / "a").cut_off


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is no recording of fairnotice"),
        (b"\xff\xfe\x00", "is no recording of fairnotice"),
        (b"[]\n", "is no recording of fairnotice"),
        (b'{"Events":[]}\n', "is no recording of fairnotice"),
        (b'{"fairnotice_recording":1,"started":"soon"}\n', "is no recording of fairnotice"),
        (b'{"fairnotice_recording":2,"new":0}\n', "of a later fairnotice (format 2, known is 1)"),
        (FIRST.encode(), "in which nothing was answered"),
        (FIRST.encode() + b"what\n", "line 2: this is no JSON"),
        (FIRST.encode() + b"\xff\n", "line 2: this is no JSON"),
        (FIRST.encode() + b"7\n", "line 2: this is no answer"),
        (FIRST.encode() + b'{"at":1}\n', "line 2: this is no answer"),
        (FIRST.encode() + b'{"at":1,"took":1,"asked":0,"lines":{}}\n', "line 2: this is no answer"),
        (
            FIRST.encode() + b'{"at":0,"took":0,"request":{"method":"GET","target":"/","head":[]},'
            b'"body_base64":"?"}\n',
            "line 2: this is no answer",
        ),
    ],
)
def test_what_is_no_recording_is_said_to_be_none(tmp_path, text, said):
    """With the line, where it is one line."""
    (tmp_path / "a").write_bytes(text)

    with pytest.raises(UsageError) as refused:
        Recording(tmp_path / "a")

    assert said in str(refused.value)


@pytest.mark.parametrize("first", [b"", FIRST.encode()])
def test_a_gigantic_file_is_not_read_into_memory(tmp_path, first):
    """A terabyte of nothing is refused after its first piece."""
    with (tmp_path / "a").open("wb") as file:
        file.write(first)
        file.truncate(2**40)

    with pytest.raises(UsageError):
        Recording(tmp_path / "a")


@pytest.mark.parametrize(("path", "said"), [("/no/such/file", "No such file"), ("/", "directory")])
def test_a_file_that_cannot_be_read(path, said):
    """It is said why."""
    with pytest.raises(UsageError, match=said):
        Recording(Path(path))


def test_the_first_line_says_when_and_where(tmp_path):
    """For whoever opens the file."""
    (tmp_path / "a").write_bytes(
        Writer.opening(Opening(DEFAULT_START, "http://here", "fairnotice 1"))
        + Writer().line(Exchange(0, 0, POLL, answer(EMPTY)))
        + Writer.end(7.5)
    )
    recording = Recording(tmp_path / "a")

    assert recording.opening == Opening(DEFAULT_START, "http://here", "fairnotice 1")
    assert (recording.answers, recording.seconds) == (1, 7.5)
