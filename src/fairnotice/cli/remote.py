"""The control plane as a client sees it: JSON over HTTP, and its problems as sentences."""

import json
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from http.client import (
    HTTP_PORT,
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
)
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from fairnotice.cli import exits
from fairnotice.cli.exits import CommandFailed
from fairnotice.cli.settings import BY_NAME, place
from fairnotice.control.holders import is_loopback

TIMEOUT_SECONDS = 30
# It has answered just now, in its way.
GREETING_SECONDS = 3
PAGE = 1_000
PIECE_BYTES = 256 * 1024
# An id in full; what is shorter is the beginning of one.
ID_CHARACTERS = 36
CHOICES_SHOWN = 5
# So much of an id is enough for a person.
SHORT_CHARACTERS = 8
# How the `type` of every problem begins that a control plane has.
PROBLEMS = "urn:fairnotice:problem:"
NO_ADDRESS = (f"{PROBLEMS}no-address", f"{PROBLEMS}no-method")
UNAUTHENTICATED = (
    "The control plane wants a token that counts: FAIRNOTICE_TOKEN has none, or one that is "
    "unknown, revoked or expired. An admin makes one: fairnotice token create"
)
# What OpenSSL says of a certificate that is for another name, address of mail, or address.
OTHER_NAMES = (62, 63, 64)
# conductor.feed's: the feed answers with the state as it is, and goes on from there. Not imported,
# since that would bring the whole law into every command.
FROM_NOW = 2**53 - 1


class Unreachable(CommandFailed):
    """Nobody answers, or somebody else."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, exits.UNREACHABLE)


class Answer(NamedTuple):
    """What was answered, and when by the clock over there."""

    status: int
    body: Any
    date: str | None


class Remote:
    """A control plane at an address; every call opens a connection of its own."""

    def __init__(self, url: str, *, token: str = "", ca: str = "") -> None:
        if not BY_NAME["url"].fits(url):
            sentence = f"{url!r} is no address of a control plane; try http://127.0.0.1:8600"
            raise CommandFailed(sentence, exits.WRONG_USAGE)
        parts = urlsplit(url)
        self._port = parts.port
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._name = parts.hostname or ""
        self._base = parts.path.rstrip("/")
        self._place = f"{parts.netloc}{self._base}"
        self._headers = {} if not token else {"Authorization": f"Bearer {self._sendable(token)}"}
        self._ca = ca

    def _sendable(self, token: str) -> str:
        """The token, where it can be one and nobody on the way reads it. It is never repeated."""
        if not (token.isascii() and token.isprintable()) or " " in token:
            sentence = "FAIRNOTICE_TOKEN is no token: it is one word, fairnotice_… Take it anew."
            raise CommandFailed(sentence, exits.WRONG_USAGE)
        if not self._secure and not is_loopback(self._name):
            sentence = f"FAIRNOTICE_TOKEN is not sent to {self.url}: on the way everybody could "
            raise CommandFailed(f"{sentence}read it. Ask by https.", exits.WRONG_USAGE)
        return token

    # ---- Calls ----

    def get(self, *path: str, **query: Any) -> Any:  # noqa: ANN401, JSON
        """What is at this path."""
        return self._checked(self.ask("GET", path, query=query))

    def post(self, *path: str, body: Any = None) -> Any:  # noqa: ANN401, JSON
        """What came of asking for this."""
        return self._checked(self.ask("POST", path, body={} if body is None else body))

    def put(self, *path: str, body: Any) -> Any:  # noqa: ANN401, JSON
        """What came of declaring this."""
        return self._checked(self.ask("PUT", path, body=body))

    def patch(self, *path: str, body: Any) -> Any:  # noqa: ANN401, JSON
        """What came of changing this."""
        return self._checked(self.ask("PATCH", path, body=body))

    def delete(self, *path: str) -> Any:  # noqa: ANN401, JSON
        """What came of taking this away."""
        return self._checked(self.ask("DELETE", path))

    def everything(self, kind: str, **query: Any) -> dict[str, Any]:  # noqa: ANN401, JSON
        """A list from its first part to its last, in the shape of one part."""
        items: list[Any] = []
        after: str | None = ""
        while after is not None:
            part = self.get("v1", kind, limit=PAGE, after=after, **query)
            if not part.keys() >= {"items", "next"}:
                raise self._somebody_else()
            items += part["items"]
            after = part["next"]
        return {"items": items, "next": None}

    def feed(self, after: int = FROM_NOW) -> Iterator[dict[str, Any]]:
        """Every change after this revision, for as long as the control plane lives."""
        response = self._open("GET", ("v1", "feed"), {"after": after}, None, timeout_seconds=None)
        self._checked_status(response)
        try:
            for line in response:
                yield json.loads(line)
        except (OSError, HTTPException, ValueError) as error:
            raise self._gone(error) from error

    def pieces(self, *path: str) -> Iterator[bytes]:
        """What is at this path and is no JSON, as it comes; Unreachable where it is cut off."""
        response = self._open("GET", path, None, None, TIMEOUT_SECONDS)
        self._checked_status(response)
        try:
            while piece := response.read(PIECE_BYTES):
                yield piece
        except (OSError, HTTPException) as error:
            raise self._gone(error) from error

    def id_of(self, kind: str, begins: str) -> str:
        """The one id of this kind that begins so."""
        if len(begins) >= ID_CHARACTERS:
            return begins
        ids = [str(row["id"]) for row in self.everything(kind)["items"]]
        found = [one for one in ids if _begins(one.lower(), begins.lower())]
        if not found:
            near = _nearest(begins, ids)
            if not near and kind != "events":
                # The control plane has the sentence for it.
                return begins
            older = "One that is over for more than a day is known by its whole id."
            meant = f"Did you mean {near}?" if near else older
            sentence = f"There is no {kind.removesuffix('s')} {begins}. {meant}"
            raise CommandFailed(sentence, exits.NOT_FOUND)
        if len(found) > 1:
            shown = ", ".join(found[:CHOICES_SHOWN])
            sentence = f"{len(found)} {kind} begin with {begins}: {shown}. {_more(found)}"
            raise CommandFailed(sentence, exits.WRONG_USAGE)
        return found[0]

    def health(self) -> dict[str, Any]:
        """What a control plane says of itself, ready or not."""
        found = self.ask("GET", ("readyz",)).body
        if not isinstance(found, dict) or "ready" not in found:
            raise self._somebody_else()
        return found

    # ---- HTTP ----

    def ask(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401, JSON
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Answer:
        """Whatever is answered, good or bad; Unreachable where nobody does."""
        response = self._open(method, path, query, body, timeout_seconds)
        try:
            content = response.read()
            decoded = json.loads(content)
        except (OSError, HTTPException) as error:
            raise self._gone(error) from error
        except ValueError as error:
            raise self._somebody_else() from error
        return Answer(response.status, decoded, response.headers.get("Date"))

    def _open(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, Any] | None,
        body: Any,  # noqa: ANN401, JSON
        timeout_seconds: float | None,
    ) -> HTTPResponse:
        target = "/".join((self._base, *(quote(part, safe=":") for part in path)))
        if query:
            target += "?" + urlencode(query)
        content = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json", "Connection": "close", **self._headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection(timeout_seconds)
        try:
            connection.request(method, target, content, headers)
            return connection.getresponse()
        except HTTPException as error:
            raise self._somebody_else() from error
        except OSError as error:
            raise self._gone(error) from error

    def _connection(self, timeout_seconds: float | None) -> HTTPConnection:
        if self._secure:
            context = trusting(self._ca, "Check --ca.")
            return HTTPSConnection(self._name, self._port, timeout=timeout_seconds, context=context)
        return HTTPConnection(self._name, self._port, timeout=timeout_seconds)

    # ---- Bad answers ----

    def _checked_status(self, response: HTTPResponse) -> None:
        if response.status >= HTTPStatus.BAD_REQUEST:
            try:
                body = json.loads(response.read())
            except ValueError as error:
                raise self._somebody_else() from error
            self._checked(Answer(response.status, body, None))

    def _checked(self, answer: Answer) -> Any:  # noqa: ANN401, JSON
        if not isinstance(answer.body, dict):
            raise self._somebody_else()
        if answer.status < HTTPStatus.BAD_REQUEST:
            return answer.body
        kind = str(answer.body.get("type"))
        # All addresses that are asked for are there, unless --url names something below one.
        if not kind.startswith(PROBLEMS) or kind in NO_ADDRESS or "detail" not in answer.body:
            raise self._somebody_else()
        raise failure(answer.body)

    def _gone(self, error: Exception) -> Unreachable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return Unreachable(self._not_trusted(error))
        if isinstance(error, ConnectionResetError) and self._speaks_tls():
            return self._asked_without_tls()
        why = "it took too long" if isinstance(error, TimeoutError) else _why(error)
        remedy = f"Is it running? Look on {self._name}: systemctl status fairnotice"
        if is_loopback(self._name) and not self._secure:
            remedy = "Is it running? Start one with: fairnotice up"
        return Unreachable(f"No control plane answers at {self.url} ({why}). {remedy}")

    def _not_trusted(self, error: ssl.SSLCertVerificationError) -> str:
        why = error.verify_message.rstrip(".")
        if error.verify_code in OTHER_NAMES:
            sentence = f"The certificate of {self.url} is for another name: {why}."
            return f"{sentence} Ask by a name that is in it, or have one made for this name."
        sentence = f"The certificate of {self.url} is not trusted: {why}."
        return f"{sentence} Give the CA's with --ca FILE or FAIRNOTICE_CA."

    def _somebody_else(self) -> Unreachable:
        if self._speaks_tls():
            return self._asked_without_tls()
        return Unreachable(
            f"What answers at {self.url} is no control plane; check --url or FAIRNOTICE_URL."
        )

    def _asked_without_tls(self) -> Unreachable:
        return Unreachable(
            f"What answers at {self.url} speaks TLS: ask by --url https://{self._place} or "
            "FAIRNOTICE_URL. If the system does not know its CA, give that with --ca FILE or "
            "FAIRNOTICE_CA."
        )

    def _speaks_tls(self) -> bool:
        """Whether it was asked by http where https is spoken.

        A TLS server hangs up on HTTP, as others do for other reasons: so it is greeted in TLS.
        Nothing is sent to it, so whether it is trusted does not matter.
        """
        if self._secure:
            return False
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = (self._name, self._port or HTTP_PORT)
        try:
            with (
                socket.create_connection(address, GREETING_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=self._name),
            ):
                return True
        except OSError:
            return False


def trusting(ca: Path | str, remedy: str, *, alone: bool = True) -> ssl.SSLContext:
    """Who vouches for whom is asked: those in this file, alone or beside the system's; or these."""
    try:
        context = ssl.create_default_context(cafile=ca if alone and ca else None)
        if ca and not alone:
            context.load_verify_locations(ca)
    except OSError as error:
        # A file that holds no certificate is an SSLError, which is one of these.
        sentence = f"{ca} holds no CA certificates: {_why(error)}. {remedy}"
        raise CommandFailed(sentence, exits.WRONG_USAGE) from error
    return context


def _begins(name: str, begins: str) -> bool:
    """Whether an id is meant: `5c1e` begins `5c1e…`, and `5c1e.1` is short for `5c1e….1`."""
    head, point, number = begins.partition(".")
    return bool(head) and name.startswith(head) and name.endswith(point + number)


def _nearest(begins: str, ids: Iterable[str]) -> str:
    """The ids that begin nearly so, as far as a person types them; nothing where none does."""
    # What was typed is compared with as much of an id; the rest would only make them unlike.
    typed, point, _ = begins.partition(".")
    by_beginning: dict[str, str] = {}
    for one in ids:
        head, _, number = one.partition(".")
        alike = head[: len(typed)] + (f".{number}" if point else "")
        by_beginning.setdefault(alike.lower(), _cut(one, len(typed)))
    near = get_close_matches(begins.lower(), by_beginning) if begins else []
    return " or ".join(by_beginning[one] for one in near)


def _cut(name: str, characters: int = 0) -> str:
    """An id as a person types it. Operations of one request differ by their number only."""
    head, point, number = name.partition(".")
    return head[: max(characters, SHORT_CHARACTERS)] + point + number


def _more(found: list[str]) -> str:
    """What makes one of these of an id that begins all of them."""
    if len({one.partition(".")[0] for one in found}) > 1:
        return "Give more of the id."
    return f"Add the number: {_cut(found[0])}. To cancel all of them, give the whole id before it."


def metadata_elsewhere(url: str, control: str, health: Mapping[str, Any]) -> str | None:
    """Where a control plane serves metadata, if this is another's endpoint; None if its own."""
    own = place(str(health.get("metadata", "")))
    asked = urlsplit(url)
    # Elsewhere there may be a proxy or a translation of addresses between the two.
    hosts = (asked.hostname or "", urlsplit(control).hostname or "")
    if own is None or own[1] == asked.port or not all(map(is_loopback, hosts)):
        return None
    return f"{asked.scheme}://{asked.hostname}:{own[1]}"


def _why(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (text or type(error).__name__).lower()


def failure(problem: Mapping[str, Any]) -> CommandFailed:
    """A problem of the API as the end of a command."""
    if str(problem.get("type", "")).endswith(":unauthenticated"):
        return CommandFailed(UNAUTHENTICATED)
    sentence = str(problem["detail"])
    field = problem.get("field")
    # The law's own sentences say what they are about.
    if field and not problem.get("rule") and not sentence.startswith((field, f"`{field}`")):
        sentence = f"{field}: {sentence}"
    unknown = str(problem.get("type", "")).endswith(":not-found")
    event = problem.get("event")
    if event:
        which = "See" if event in sentence else f"It is event {event}"
        sentence += f" {which}: fairnotice event show {event[:SHORT_CHARACTERS]}"
    elif operation := problem.get("operation"):
        # Nobody was told of it, so there is no event to look at.
        sentence += f" See: fairnotice operation show {operation}"
    return CommandFailed(sentence, exits.NOT_FOUND if unknown else exits.REFUSED)
