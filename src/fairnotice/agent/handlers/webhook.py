"""`kind = "webhook"`: tells somebody over HTTP, before and after, as a CloudEvent.

CloudEvents 1.0 in JSON, structured mode: one POST with `application/cloudevents+json`. It is tried
until the deadline while nobody answers or the answer is 408, 425, 429 or 5xx; the id stays the
same, so that a receiver which was told twice can see it. Redirects are not followed and proxies
not used: what is told goes where the configuration says.
"""

import contextlib
import json
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, urlsplit

from fairnotice.agent.handlers.handler import Call, Teller
from fairnotice.agent.handlers.patience import Again, again, keep_trying, tls
from fairnotice.agent.tables import Secret, Table
from fairnotice.client.document import one_line
from fairnotice.errors import HandlerFailed

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

_TRY_AGAIN = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
_SUCCESS = range(200, 300)
_PAUSE_MOST_SECONDS = 30
_SAID_BYTES = 200


def make(table: Table) -> "Webhook":
    """The handler of this table."""
    # Of many chats the address itself is the secret.
    hidden = table.secret("url", or_plain=True)
    url = table.text("url", "") or hidden
    made = Webhook(
        url or "",
        _checked_headers(table),
        secret_header=table.text("secret_header", "Authorization"),
        secret=table.secret("secret"),
        timeout_seconds=table.seconds("timeout_seconds", 5.0),
        ca_file=table.text("ca_file", "") or None,
    )
    table.done()
    if not url:
        raise table.refuse("url is missing; url_file or url_env would do, too.")
    if isinstance(url, str):
        _check(url, table)
    return made


def _check(url: str, table: Table) -> None:
    if "url_file" in table or "url_env" in table:
        raise table.refuse("url is given twice: which one is it?")
    if not _is_url(url):
        raise table.refuse(f"url is {url!r}: give http://… or https://… .")
    if "@" in urlsplit(url).netloc:
        raise table.refuse("url has a user in it: a secret goes into secret_file or secret_env.")


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(good) and url.isascii() and url.isprintable() and " " not in url


def _checked_headers(table: Table) -> dict[str, str]:
    headers = table.texts("headers")
    for name, value in headers.items():
        if not name.replace("-", "").isalnum() or not f"{name}{value}".isascii():
            raise table.refuse(f"headers.{name} is no header that HTTP can carry.")
        if not value.isprintable():
            raise table.refuse(f"headers.{name} is {value!r}: give one line.")
        if name.lower() in _SECRET_HEADERS:
            raise table.refuse(f"headers.{name} is a secret: give secret_file or secret_env.")
    return headers


class Webhook(Teller):
    """Posts what is going to happen, and what is over."""

    def __init__(
        self,
        url: str | Secret,
        headers: dict[str, str],
        *,
        secret_header: str,
        secret: Secret | None,
        timeout_seconds: float,
        ca_file: str | None,
    ) -> None:
        self._url = url
        self._headers = headers
        self._secret_header = secret_header
        self._secret = secret
        self._timeout_seconds = timeout_seconds
        self._ca_file = ca_file

    def tell(self, call: Call) -> None:
        """Post it, until it is taken or the time is over."""
        body = json.dumps(cloud_event(call)).encode()
        headers = {**self._headers, "Content-Type": "application/cloudevents+json; charset=utf-8"}
        if self._secret is not None:
            headers[self._secret_header] = self._secret.read()
        url = self._url if isinstance(self._url, str) else self._url.read()
        if not _is_url(url):
            raise HandlerFailed(f"What {self._url!r} holds is no http://… or https://… .")
        parts = urlsplit(url)
        what = f"the webhook to {parts.netloc.rpartition('@')[2]}"
        keep_trying(call, lambda: self._post(parts, body, headers), what)

    def _post(self, parts: SplitResult, body: bytes, headers: dict[str, str]) -> None:
        from http.client import HTTPException  # noqa: PLC0415 - it is heavy, and rarely needed

        place = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection = self._connection(parts)
        with contextlib.closing(connection):
            try:
                connection.request("POST", place, body, headers)
                _judge(connection.getresponse())
            except (OSError, HTTPException) as error:
                raise again(error) from error

    def _connection(self, parts: SplitResult) -> "HTTPConnection":
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - the same

        assert parts.hostname is not None
        if parts.scheme == "http":
            return HTTPConnection(parts.hostname, parts.port, timeout=self._timeout_seconds)
        return HTTPSConnection(
            parts.hostname,
            parts.port,
            timeout=self._timeout_seconds,
            context=tls(self._ca_file),
        )


def _judge(response: "HTTPResponse") -> None:
    """Nothing where it was taken; Again or HandlerFailed where not."""
    if response.status in _SUCCESS:
        return
    shown = one_line(response.read(_SAID_BYTES).decode("utf-8", errors="replace"))
    sentence = f"it answered {response.status}{f': {shown}' if shown else ''}."
    if response.status >= _SERVER_ERROR or response.status in _TRY_AGAIN:
        wait = response.headers.get("Retry-After", "")
        asked = int(wait) if wait.isascii() and wait.isdigit() else 0
        raise Again(sentence, min(asked, _PAUSE_MOST_SECONDS))
    raise HandlerFailed(f"The webhook was refused: {sentence}")


def cloud_event(call: Call) -> dict[str, object]:
    """The event as CloudEvents 1.0 asks for it."""
    return {
        "specversion": "1.0",
        "id": f"{call.event.id}-{call.phase}",
        "source": f"/fairnotice/vm/{quote(call.vm, safe='')}",
        "type": f"fairnotice.event.{call.phase}",
        "subject": call.event.id,
        "time": f"{call.clock.wall():%Y-%m-%dT%H:%M:%SZ}",
        "datacontenttype": "application/json",
        "data": call.facts(),
    }
