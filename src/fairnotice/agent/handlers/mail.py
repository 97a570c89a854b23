"""`kind = "mail"`: tells an administrator, before and after.

Over STARTTLS unless told otherwise. It is tried until the deadline while the mail server is away or
says that it is busy (4yz); the Message-ID stays the same, so that no mailbox shows it twice.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairnotice.agent.handlers.handler import CANCELED, PREPARE, Call, Teller
from fairnotice.agent.handlers.patience import Again, again, keep_trying, tls
from fairnotice.agent.tables import Secret, Table
from fairnotice.client.document import one_line
from fairnotice.errors import HandlerFailed

if TYPE_CHECKING:
    from email.message import EmailMessage
    from smtplib import SMTP

# Who was refused, with the code and what was said.
Replies = Mapping[str, tuple[int, bytes | str]]
_PERMANENT = 500
_SECURITY = ("starttls", "tls", "plain")


def make(table: Table) -> "Mail":
    """The handler of this table."""
    security = table.choice("security", _SECURITY, "starttls")
    made = Mail(
        table.address("server", "mail.example.com:587"),
        table.text("from"),
        table.words("to"),
        security=security,
        user=table.text("user", ""),
        password=table.secret("password"),
        ca_file=table.text("ca_file", "") or None,
        timeout_seconds=table.seconds("timeout_seconds", 10.0),
    )
    table.done()
    for key, addresses in (("from", (table.text("from"),)), ("to", table.words("to"))):
        for address in addresses:
            if "@" not in address or one_line(address) != address:
                raise table.refuse(f"{key} has {address!r}, which is no mail address.")
    if ("user" in table) != ("password_file" in table or "password_env" in table):
        raise table.refuse("user and password_file or password_env belong together.")
    if "user" in table and security == "plain":
        raise table.refuse("security is plain, and would send the password readable: use starttls.")
    return made


class Mail(Teller):
    """Writes a mail for each phase."""

    def __init__(
        self,
        server: tuple[str, int],
        sender: str,
        to: tuple[str, ...],
        *,
        security: str,
        user: str,
        password: Secret | None,
        ca_file: str | None,
        timeout_seconds: float,
    ) -> None:
        self._server = server
        self._sender = sender
        self._to = to
        self._security = security
        self._user = user
        self._password = password
        self._ca_file = ca_file
        self._timeout_seconds = timeout_seconds

    def tell(self, call: Call) -> None:
        """Send it, until it is taken or the time is over."""
        message = self._message(call)
        keep_trying(call, lambda: self._send(message), f"the mail to {', '.join(self._to)}")

    def _message(self, call: Call) -> "EmailMessage":
        from email.message import EmailMessage  # noqa: PLC0415 - heavy, and rarely needed
        from email.utils import format_datetime  # noqa: PLC0415 - the same

        event = call.event
        ahead = call.phase == PREPARE
        message = EmailMessage()
        message["From"] = self._sender
        message["To"] = ", ".join(self._to)
        after = "was canceled for" if call.ended == CANCELED else "is over for"
        what = "is announced for" if ahead else after
        message["Subject"] = one_line(f"{event.type} {what} {call.vm}")
        message["Date"] = format_datetime(call.clock.wall())
        message["Message-ID"] = f"<{_plain(event.id)}.{call.phase}.{_plain(call.vm)}@fairnotice>"
        facts = "\n".join(f"{name}: {_told(fact)}" for name, fact in call.facts().items())
        message.set_content(f"{one_line(event.type)} {what} {call.vm}.\n\n{facts}\n")
        return message

    def _send(self, message: "EmailMessage") -> None:
        import smtplib  # noqa: PLC0415 - the same

        try:
            with self._connected() as server:
                if self._password is not None:
                    server.login(self._user, self._password.read())
                refused = server.send_message(message)
        except smtplib.SMTPNotSupportedError as error:
            raise HandlerFailed(f"{self._server[0]}: {error}") from error
        except smtplib.SMTPResponseException as error:
            raise self._judged({"it": (error.smtp_code, error.smtp_error)}) from error
        except smtplib.SMTPRecipientsRefused as error:
            raise self._judged(error.recipients) from error
        except (OSError, smtplib.SMTPException) as error:
            raise again(error) from error
        if refused:
            # The others have it already; to try again would send it to them twice.
            raise HandlerFailed(f"The mail was sent, but one was not taken: {_replies(refused)}.")

    def _judged(self, replies: Replies) -> Exception:
        """What the server's replies mean: whether it is worth trying again."""
        sentence = f"{self._server[0]} answered {_replies(replies)}."
        if all(code >= _PERMANENT for code, _ in replies.values()):
            return HandlerFailed(f"The mail was refused: {sentence}")
        return Again(sentence)

    def _connected(self) -> "SMTP":
        from smtplib import SMTP, SMTP_SSL  # noqa: PLC0415 - the same

        name, port = self._server
        if self._security == "tls":
            context = tls(self._ca_file)
            return SMTP_SSL(name, port, timeout=self._timeout_seconds, context=context)
        server = SMTP(name, port, timeout=self._timeout_seconds)
        if self._security == "starttls":
            try:
                server.starttls(context=tls(self._ca_file))
            except BaseException:
                server.close()
                raise
        return server


def _plain(word: str) -> str:
    """A word as a Message-ID can hold it."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in word)


def _told(fact: object) -> str:
    if fact is None:
        return "not told"
    return one_line(", ".join(map(str, fact)) if isinstance(fact, list) else str(fact))


def _replies(replies: Replies) -> str:
    """`night@example.com: 550 who?` for each."""
    return ", ".join(
        f"{whom}: {code} {one_line(_text(said))}" for whom, (code, said) in replies.items()
    )


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", errors="replace") if isinstance(said, bytes) else said
