"""Handlers that tell somebody: over HTTP, by mail, into a log. Each against the real thing."""

import email
import json
import os
import socket
from dataclasses import replace
from email.policy import default

import pytest

from fairnotice.errors import HandlerFailed
from tests.agent.handlers.calls import REBOOT, after, call, made
from tests.agent.handlers.mailbox import Mailbox, self_signed, server_context
from tests.agent.handlers.receiver import Receiver

FACTS = {
    "event_id": REBOOT.id,
    "event_type": "Reboot",
    "event_status": "Scheduled",
    "event_source": "Platform",
    "not_before": "2026-03-01T12:00:00Z",
    "duration_seconds": -1,
    "description": "Host server is undergoing maintenance.",
    "resources": ["web-0", "web-1"],
    "vm": "web-0",
    "phase": "prepare",
    "ended": None,
    "remaining_seconds": 29,
}
# What a service may send, and no log, header or terminal should be given as it is.
ODD = replace(
    REBOOT, type="Reboot\r\nBcc: all@example.com", description="a\nb\x1b[0m", not_before=None
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 and its key, as files."""
    return self_signed(tmp_path_factory.mktemp("tls"))


# ---- Webhook ----


TAKEN = (204, b"", {})
BUSY = (503, b"not now", {})


def test_a_webhook_is_a_cloud_event(tmp_path):
    """CloudEvents 1.0, structured mode, with the secret of the file as it is at that moment."""
    secret = tmp_path / "token"
    secret.write_text("Bearer one\n")
    with Receiver(TAKEN) as receiver:
        webhook = made(
            f"kind = 'webhook'\nurl = '{receiver.url}'\nheaders = {{X-Room = 'ops'}}\n"
            f"secret_file = '{secret}'"
        )
        webhook.prepare(call(29.9))
        secret.write_text("Bearer two\n")
        webhook.recover(after())

    (path, headers, body), (_, then, recovered) = receiver.taken
    assert (path, headers["X-Room"]) == ("/hooks?room=ops", "ops")
    assert headers["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert (headers["Authorization"], then["Authorization"]) == ("Bearer one", "Bearer two")
    assert body.pop("time").endswith("Z")
    assert body == {
        "specversion": "1.0",
        "id": f"{REBOOT.id}-prepare",
        "source": "/fairnotice/vm/web-0",
        "type": "fairnotice.event.prepare",
        "subject": REBOOT.id,
        "datacontenttype": "application/json",
        "data": FACTS,
    }
    assert recovered["type"] == "fairnotice.event.recover"
    assert recovered["id"] != body["id"]


def test_a_webhook_is_tried_again_until_it_is_taken():
    """What is busy or overrun is asked again, as late as it asks for; the id is the same."""
    late = (429, b"", {"Retry-After": "1"})
    with Receiver(BUSY, late, TAKEN) as receiver:
        made(f"kind = 'webhook'\nurl = '{receiver.url}'").prepare(told := call(20))

    assert len({body["id"] for _, _, body in receiver.taken}) == 1
    assert len(receiver.taken) == 3
    assert told.remaining_seconds() <= 19


def test_an_address_that_is_a_secret_is_in_no_sentence(tmp_path, monkeypatch):
    """Of many chats it is: whoever has it may post."""
    with Receiver(TAKEN) as receiver:
        monkeypatch.setenv("HOOK", f"{receiver.url}&token=hunter2")
        made("kind = 'webhook'\nurl_env = 'HOOK'").prepare(call())
        assert receiver.taken[0][0] == "/hooks?room=ops&token=hunter2"
    for address in ("http://hunter2@127.0.0.1:9/hunter2", "hunter2", "http://ä/hunter2"):
        (tmp_path / "url").write_text(address)
        with pytest.raises(HandlerFailed) as failed:
            made(f"kind = 'webhook'\nurl_file = '{tmp_path}/url'").prepare(call(0.3))
        assert "hunter2" not in str(failed.value)


def test_a_webhook_goes_to_whom_it_is_meant_for(certificate):
    """Over TLS the certificate is checked, and a wrong one gets no second try."""
    with Receiver(TAKEN, context=server_context(*certificate)) as receiver:
        toml = f"kind = 'webhook'\nurl = '{receiver.url}'\n"
        made(f"{toml}ca_file = '{certificate[0]}'").prepare(call())
        with pytest.raises(HandlerFailed, match="is not who it says: SSLCertVerificationError"):
            made(toml).prepare(call(60))
    assert len(receiver.taken) == 1


@pytest.mark.parametrize("status", [302, 400, 401, 404])
def test_a_webhook_that_is_refused_is_not_tried_again(status):
    """Nor is another address asked, whatever the answer says."""
    answer = (status, b"no\nway", {"Location": "http://127.0.0.1:9/"})
    with Receiver(answer) as receiver:
        with pytest.raises(HandlerFailed, match=f"was refused: it answered {status}: no way"):
            made(f"kind = 'webhook'\nurl = '{receiver.url}'").prepare(call(20))
        assert len(receiver.taken) == 1


def test_a_webhook_that_nobody_takes_fails_by_the_deadline():
    """It says what the last try met."""
    with Receiver(BUSY) as receiver:
        with pytest.raises(HandlerFailed, match="it answered 503: not now"):
            made(f"kind = 'webhook'\nurl = '{receiver.url}'").prepare(call(1))
        assert len(receiver.taken) > 1
    with pytest.raises(HandlerFailed, match=r"127\.0\.0\.1:9 failed: ConnectionRefusedError"):
        made("kind = 'webhook'\nurl = 'http://127.0.0.1:9/'").prepare(call(0.5))


# ---- Mail ----


def mail(mailbox, more=""):
    """A mail to two, by this server."""
    return made(
        f"kind = 'mail'\nserver = '127.0.0.1:{mailbox.port}'\nfrom = 'vm@example.com'\n"
        f"to = ['ops@example.com', 'night@example.com']\n{more}"
    )


def test_a_mail_says_what_and_when():
    """In words for people, and every fact."""
    with Mailbox() as mailbox:
        plain = mail(mailbox, "security = 'plain'")
        plain.prepare(call(29.9))
        plain.recover(after())

    before, over = (email.message_from_string(text, policy=default) for text in mailbox.kept)
    assert before["Subject"] == "Reboot is announced for web-0"
    assert before["To"] == "ops@example.com, night@example.com"
    body = before.get_content()
    assert "not_before: 2026-03-01T12:00:00Z" in body
    assert "resources: web-0, web-1" in body
    assert over["Subject"] == "Reboot is over for web-0"
    assert before["Message-ID"] != over["Message-ID"]
    assert before["Date"]


def test_nothing_in_an_event_becomes_a_header():
    """A type with a line end in it stays in its line."""
    with Mailbox() as mailbox:
        mail(mailbox, "security = 'plain'").prepare(call(event=ODD))
    (text,) = mailbox.kept
    message = email.message_from_string(text, policy=default)
    assert message["Bcc"] is None
    assert message["Subject"] == "Reboot Bcc: all@example.com is announced for web-0"
    assert "not_before: not told" in message.get_content()


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_goes_encrypted_with_a_password(certificate, security, monkeypatch):
    """Over a connection whose certificate is checked."""
    monkeypatch.setenv("MAIL_PASSWORD", "hunter2")
    more = f"security = '{security}'\nuser = 'vm'\npassword_env = 'MAIL_PASSWORD'\n"
    with Mailbox(server_context(*certificate), tls_first=security == "tls") as mailbox:
        mail(mailbox, f"{more}ca_file = '{certificate[0]}'").prepare(call())
        assert len(mailbox.kept) == len(mailbox.logins) == 1
        with pytest.raises(HandlerFailed, match="CERTIFICATE_VERIFY_FAILED") as failed:
            mail(mailbox, more).prepare(call(60))
        assert "hunter2" not in str(failed.value)
        with pytest.raises(HandlerFailed, match=r"ca_file /none cannot be used"):
            mail(mailbox, f"{more}ca_file = '/none'").prepare(call())
    assert len(mailbox.kept) == 1


def test_no_mail_goes_readable_unless_told_so():
    """A server without STARTTLS is not given one."""
    with Mailbox() as mailbox:
        with pytest.raises(HandlerFailed, match="STARTTLS"):
            mail(mailbox).prepare(call(60))
        assert mailbox.kept == []


def test_a_mail_server_that_is_busy_is_tried_again_and_one_that_refuses_is_not():
    """4yz is for later, 5yz for good."""
    with Mailbox() as mailbox:
        plain = mail(mailbox, "security = 'plain'")
        mailbox.answers = ["451 later", "451 later"]
        plain.prepare(call())
        assert len(mailbox.kept) == 1
        mailbox.answers = ["550 who?", "550 who?", "250 ok", "250 ok"]
        with pytest.raises(HandlerFailed, match=r"refused: .*550.*who\?"):
            plain.prepare(call())
        assert len(mailbox.answers) == 2
        assert len(mailbox.kept) == 1
        mailbox.answers = ["250 ok", "451 later"]
        with pytest.raises(HandlerFailed, match=r"one was not taken: .*night@example.com.*451"):
            plain.prepare(call())
        assert len(mailbox.kept) == 2


# ---- Log ----


@pytest.fixture
def listener(tmp_path):
    """A socket as journald and syslog have one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "log.sock"))
        listening.settimeout(10)
        yield listening


def fields(datagram):
    """What journald would make of it."""
    found = {}
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[9 + size :]
        found[name.decode()] = value.decode()
        datagram = rest
    return found


def test_journald_is_told_every_fact_as_a_field(listener, tmp_path):
    """By its native protocol, a description of two lines too."""
    log = made(f"kind = 'log'\nto = 'journald'\nsocket = '{tmp_path}/log.sock'")
    log.prepare(call(event=replace(REBOOT, description="a\nPRIORITY=0")))

    told = fields(listener.recv(65536))
    assert told["PRIORITY"] == "5"
    assert told["SYSLOG_IDENTIFIER"] == "fairnotice"
    assert told["FAIRNOTICE_DESCRIPTION"] == "a\nPRIORITY=0"
    assert told["FAIRNOTICE_EVENT_ID"] == REBOOT.id
    assert told["MESSAGE"] == (
        "prepare web-0: Reboot (Scheduled) not before 2026-03-01 12:00:00 UTC: a PRIORITY=0"
    )


def test_syslog_is_told_a_line(listener, tmp_path):
    """With its priority and who says so; nothing in an event makes a second line."""
    toml = f"kind = 'log'\nto = 'syslog'\nsocket = '{tmp_path}/log.sock'\nidentifier = 'vm'"
    made(toml).recover(after(event=ODD))

    assert listener.recv(65536).decode() == (
        f"<29>vm[{os.getpid()}]: recover web-0: Reboot Bcc: all@example.com (Scheduled): a b [0m"
    )


def test_lines_of_json_are_appended(tmp_path, capfd):
    """To a file, or printed."""
    file = tmp_path / "new" / "events.jsonl"
    log = made(f"kind = 'log'\nto = 'file'\nfile = '{file}'")
    log.prepare(call(29.9))
    log.recover(after())
    made("kind = 'log'\nto = 'stdout'").prepare(call(29.9))

    before, over = map(json.loads, file.read_text().splitlines())
    assert before.pop("time") <= over["time"]
    assert before == FACTS
    assert over["phase"] == "recover"
    assert json.loads(capfd.readouterr().out)["event_id"] == REBOOT.id


@pytest.mark.parametrize(
    "to", ["to = 'file'\nfile = '/dev/null/log'", "to = 'syslog'\nsocket = '/none'"]
)
def test_a_log_that_is_not_there_is_said(to):
    """A line that was not written is a failure."""
    with pytest.raises(
        HandlerFailed, match=r"Writing to /(dev/null/log|none) failed: (File exists|No such file)"
    ):
        made(f"kind = 'log'\n{to}").prepare(call())
