"""What an endpoint answered, as a file: one line of JSON per answer, written and read in a stream.

The first line says what it is; every other is an answer: at which second of the recording it was
asked for, how long it took, the head and the body as they were received, or how it failed. An
answer with the body of the one before is a short line: only the lines of its head that differ.
A body is text where it is UTF-8, base64 where not, so nothing of it is lost.

    {"fairnotice_recording":1,"started":"2026-01-31T22:00:00.000000Z","url":"http://169.254.169.254"}
    {"at":0.0,"took":0.0041,"request":{"number":0,"method":"GET","target":"…","head":[…]},
     "head":["HTTP/1.1 200 OK","Date: …"],"body":"{…}"}
    {"at":1.0,"took":0.0038,"asked":0,"lines":{"1":"Date: …"}}
    {"at":2.0,"took":0.0002,"asked":0,"failure":"refused"}
    {"at":3.0,"end":true}
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from fairnotice.errors import UsageError
from fairnotice.wire.versions import SCHEDULED_EVENTS

FORMAT = 1
# The api-version that is answered without the Metadata header.
OLDEST = SCHEDULED_EVENTS[0]
_MARK = "fairnotice_recording"
# No line that was written here is longer: what is longer is not read into memory.
_LINE_BYTES_MAX = 32 * 1024 * 1024
# The same request is written once and then called by its number; so many are remembered.
_NUMBERED_MAX = 256
# Headers that are another in every answer; they alone make no change.
_RESTLESS = (b"date:", b"x-ms-request-id:")


class Failure(StrEnum):
    """How a request came to no whole answer."""

    NONE = ""
    # Nobody listens there; there is no way there.
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    # What had come until then is kept.
    TIMED_OUT = "timed-out"
    DROPPED = "dropped"
    # What came is no HTTP; more came than an answer may have.
    GARBAGE = "garbage"
    TOO_LARGE = "too-large"


class Asked(NamedTuple):
    """A request: its head without the first line, as it was sent."""

    method: str
    target: str
    head: tuple[bytes, ...] = ()
    body: bytes = b""

    @property
    def is_read(self) -> bool:
        """Whether it reads a document, as a client that knows how to; a POST does not."""
        said = (line.lower().replace(b" ", b"") for line in self.head)
        old = key_of(self.target).version == OLDEST
        return self.method == "GET" and (old or b"metadata:true" in said)


class Answer(NamedTuple):
    """What came back: the status line and headers, and the body without its chunks."""

    head: tuple[bytes, ...] = ()
    body: bytes = b""
    failure: Failure = Failure.NONE

    @property
    def status(self) -> int:
        """200, 404 …; 0 where there is none."""
        parts = self.head[0].split() if self.head else []
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0

    def header(self, name: str) -> bytes | None:
        """The value of a header; the first, where it is there twice."""
        start = name.lower().encode() + b":"
        found = (line for line in self.head[1:] if line.lower().startswith(start))
        return next((line[len(start) :].strip() for line in found), None)


class Exchange(NamedTuple):
    """A request and its answer: at which second of the recording, and how long it took."""

    at: float
    took: float
    asked: Asked
    answer: Answer


class Opening(NamedTuple):
    """The first line: when the recording began, and of what it is."""

    started: datetime
    url: str = ""
    by: str = ""


class Key(NamedTuple):
    """What a target asks for, however it is written: the name of a VM in front is left out."""

    path: str
    version: str
    form: str


def key_of(target: str) -> Key:
    """The key of a target: paths and parameters are compared without case, as on the wire."""
    parts = urlsplit(target)
    path = [part for part in unquote(parts.path).lower().split("/") if part]
    if path[:1] == ["vm"]:
        path = path[2:]
    given = {name.lower(): value for name, value in parse_qsl(parts.query)}
    return Key("/".join(path), given.get("api-version", ""), given.get("format", "json").lower())


# ---- Written ----


class Writer:
    """Exchanges as lines, in their order."""

    def __init__(self, *, only_changes: bool = False) -> None:
        self.only_changes = only_changes
        self._numbers: dict[Asked, int] = {}
        self._last: dict[Asked, Answer] = {}

    @staticmethod
    def opening(opening: Opening) -> bytes:
        """The first line."""
        started = opening.started.astimezone(UTC).isoformat(timespec="microseconds")
        rest = {"started": started.replace("+00:00", "Z"), "url": opening.url, "by": opening.by}
        return _line({_MARK: FORMAT, **rest})

    def line(self, exchange: Exchange) -> bytes:
        """The line of an exchange; none where only changes are kept, and it is none."""
        asked = _alike(exchange.asked)
        before = self._last.get(asked)
        if self.only_changes and before is not None and not _differ(before, exchange.answer):
            return b""
        row: dict[str, Any] = {"at": round(exchange.at, 4), "took": round(exchange.took, 5)}
        if asked in self._numbers:
            row["asked"] = self._numbers[asked]
        else:
            row["request"] = _request_row(exchange.asked)
            if asked.method == "GET" and not asked.body and len(self._numbers) < _NUMBERED_MAX:
                self._numbers[asked] = len(self._numbers)
                row["request"]["number"] = self._numbers[asked]
        row |= _answer_row(exchange.answer, before)
        if asked in self._numbers:
            self._last[asked] = exchange.answer
        return _line(row)

    @staticmethod
    def end(at: float) -> bytes:
        """The last line: until when it was recorded."""
        return _line({"at": round(at, 4), "end": True})


def _alike(asked: Asked) -> Asked:
    """What makes a request the same as another: of its head, only what is asked for by it."""
    head = (line for line in asked.head if line.lower().startswith(b"metadata:"))
    return asked._replace(head=tuple(head))


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _differ(before: Answer, answer: Answer) -> bool:
    """Whether an answer says another thing than the one before it."""
    return _restful(before) != _restful(answer)


def _restful(answer: Answer) -> Answer:
    head = (line for line in answer.head if not line.lower().startswith(_RESTLESS))
    return answer._replace(head=tuple(head))


def _request_row(asked: Asked) -> dict[str, Any]:
    head = [line.decode("latin-1") for line in asked.head]
    row: dict[str, Any] = {"method": asked.method, "target": asked.target, "head": head}
    return row | (_body_row(asked.body) if asked.body else {})


def _answer_row(answer: Answer, before: Answer | None) -> dict[str, Any]:
    if before is not None and _is_same(answer, before):
        pairs = enumerate(zip(answer.head, before.head, strict=True))
        return {"lines": {str(n): now.decode("latin-1") for n, (now, old) in pairs if now != old}}
    row: dict[str, Any] = {"failure": str(answer.failure)} if answer.failure else {}
    if answer.head:
        row["head"] = [line.decode("latin-1") for line in answer.head]
    return row | (_body_row(answer.body) if answer.body or answer.head else {})


def _is_same(answer: Answer, before: Answer) -> bool:
    whole = bool(answer.head) and not answer.failure and not before.failure
    return whole and answer.body == before.body and len(answer.head) == len(before.head)


def _body_row(body: bytes) -> dict[str, Any]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


# ---- Read ----


class Recording:
    """A file that was recorded; never more than a line of it is in memory.

    Made, it has been read through once: `answers`, `seconds` and `asked` (which documents were
    read) say what is in it, and `cut_off` that its last line is not whole, as after a loss of
    power; that line is left out.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.answers = 0
        self.seconds = 0.0
        self.cut_off = False
        self.asked: set[Key] = set()
        with self._opened() as file:
            self.opening = self._opening(file)
        for exchange in self.exchanges():
            self.answers += 1
            if exchange.asked.is_read:
                self.asked.add(key_of(exchange.asked.target))
        if not self.answers:
            raise UsageError(f"{self.path} is a recording in which nothing was answered.")

    def exchanges(self) -> Iterator[Exchange]:
        """Every exchange from the beginning."""
        numbered: dict[int, Asked] = {}
        last: dict[int, Answer] = {}
        for place, row in self._rows():
            try:
                self.seconds = max(self.seconds, float(row["at"]))
                if "end" not in row:
                    yield _exchange(row, numbered, last)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise UsageError(f"{self.path}, line {place}: this is no answer.") from error

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self._opened() as file:
            file.readline(_LINE_BYTES_MAX)
            place = 1
            while line := file.readline(_LINE_BYTES_MAX):
                place += 1
                if not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
                    self.cut_off = True
                    return
                yield place, self._row(line, place)

    def _row(self, line: bytes, place: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self.path}, line {place}: this is no JSON.") from error
        if not isinstance(row, dict):
            raise UsageError(f"{self.path}, line {place}: this is no answer.")
        return row

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}.") from error

    def _opening(self, file: BinaryIO) -> Opening:
        nothing = f"{self.path} is no recording of fairnotice. Make one with: fairnotice record"
        try:
            row = json.loads(file.readline(_LINE_BYTES_MAX))
            number = row[_MARK]
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}.") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise UsageError(nothing) from error
        if isinstance(number, int) and number > FORMAT:
            raise UsageError(
                f"{self.path} is of a later fairnotice (format {number}, known is {FORMAT})."
            )
        try:
            started = datetime.fromisoformat(row["started"]).astimezone(UTC)
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(nothing) from error
        return Opening(started, str(row.get("url", "")), str(row.get("by", "")))


def _exchange(row: dict[str, Any], numbered: dict[int, Asked], last: dict[int, Answer]) -> Exchange:
    request = row.get("request")
    asked = numbered[row["asked"]] if request is None else _asked(request)
    number = row["asked"] if request is None else request.get("number")
    answer = _answer(row, None if number is None else last.get(number))
    if number is not None:
        numbered[number] = asked
        last[number] = answer
    return Exchange(float(row["at"]), float(row["took"]), asked, answer)


def _asked(row: dict[str, Any]) -> Asked:
    head = tuple(line.encode("latin-1") for line in row["head"])
    return Asked(str(row["method"]), str(row["target"]), head, _body(row))


def _answer(row: dict[str, Any], before: Answer | None) -> Answer:
    if "lines" not in row:
        head = tuple(line.encode("latin-1") for line in row.get("head", ()))
        return Answer(head, _body(row), Failure(row.get("failure", "")))
    if before is None:
        raise ValueError("nothing to be the same as")
    lines = list(before.head)
    for number, line in row["lines"].items():
        lines[int(number)] = line.encode("latin-1")
    return before._replace(head=tuple(lines))


def _body(row: dict[str, Any]) -> bytes:
    if "body_base64" in row:
        return b64decode(row["body_base64"], validate=True)
    text = row.get("body", "")
    return str(text).encode("utf-8", "surrogatepass")
