"""The certificate of the control plane: looked at while it serves, and never broken."""

import asyncio
import logging
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest

from fairnotice.clock import SystemClock
from fairnotice.control import certificates
from fairnotice.control.certificates import Certificates, Pair, load, stamp_of
from fairnotice.errors import UsageError
from fairnotice.testing.manual_clock import ManualClock
from tests.cli.serves import certificate
from tests.waiting import until


def copied(pair, folder):
    """The same pair in the files that are served."""
    there = Pair(folder / "c.pem", folder / "k.pem")
    for old, new in zip(pair, there, strict=True):
        new.write_bytes(old.read_bytes())
    return there


def shown(served, name):
    """The certificate that somebody is shown who asks for this name, or for none."""
    ours, theirs = socket.socketpair()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def answer():
        with served.context.wrap_socket(ours, server_side=True) as connection:
            connection.recv(1)

    server = threading.Thread(target=answer)
    server.start()
    with trusting.wrap_socket(theirs, server_hostname=name) as asking:
        found = asking.getpeercert(binary_form=True)
        asking.send(b"x")
    server.join()
    return ssl.DER_cert_to_PEM_cert(found)


@pytest.mark.parametrize("name", ["localhost", None])
def test_files_that_change_are_served_to_whoever_comes_next(tmp_path, caplog, name):
    """Half of a pair is none: until the other half is there, the one before is served."""
    first, second = (Pair(*certificate(tmp_path, one)) for one in ("first", "second"))
    there = copied(first, tmp_path)
    served = Certificates(there, SystemClock())
    assert shown(served, name) == first.certificate.read_text()
    there.certificate.write_bytes(second.certificate.read_bytes())
    served.look()
    assert shown(served, name) == first.certificate.read_text()
    assert "kept as it was" in caplog.text
    caplog.clear()
    served.look()
    assert caplog.text == ""
    there.key.write_bytes(second.key.read_bytes())
    served.look()
    assert shown(served, name) == second.certificate.read_text()


def test_it_is_looked_at_by_itself(tmp_path, caplog):
    """Every ten seconds or so; and it is said until when the new one is good."""
    there = copied(certificate(tmp_path, "first"), tmp_path)
    clock = ManualClock()
    served = Certificates(there, clock)
    copied(certificate(tmp_path, "second", days=9), tmp_path)

    async def story():
        looking = asyncio.ensure_future(served.watching())
        await asyncio.sleep(0)
        clock.advance(seconds=certificates.LOOK_EVERY_SECONDS)
        for _ in range(5):
            await asyncio.sleep(0)
        looking.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert "the certificate is good until" in caplog.text


@pytest.mark.parametrize("days", [9, 9_000, 20_000])
def test_its_end_is_read_as_it_is_written(tmp_path, caplog, days):
    """In two digits of a year or, from 2050 on, in four."""
    made, key = certificate(tmp_path, days=days)
    written = ssl._ssl._test_decode_cert(str(made))["notAfter"]
    expected = datetime.fromtimestamp(ssl.cert_time_to_seconds(written), UTC)
    assert load(Pair(made, key)).expires_at == expected
    clock = ManualClock()
    clock.set_wall(expected - timedelta(seconds=90))
    assert Certificates(Pair(made, key), clock).expires_seconds == 90
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_is_made_readable_after_it_was_put_there_is_seen(tmp_path):
    """Whoever copies as root and then gives the file away changes neither its time nor its size."""
    path = tmp_path / "key.pem"
    path.write_text("key")
    path.chmod(0o000)
    before = stamp_of(path)

    def seen():
        # Within one tick of the file system's clock two changes are one.
        path.chmod(0o600)
        return stamp_of(path) != before

    until(seen, "another stamp", seconds=2)
    assert stamp_of(path) == stamp_of(path)


def test_what_is_no_pair_is_said(tmp_path):
    """Which file it is; and nobody is asked for a passphrase in a terminal."""
    made, key = certificate(tmp_path)
    locked = tmp_path / "locked.key"
    line = f"openssl ec -in {key} -out {locked} -aes128 -passout pass:word"
    subprocess.run(line.split(), check=True, capture_output=True)  # noqa: S603 - for this test alone
    nothing = tmp_path / "nothing"
    for pair, complaint in (
        (Pair(nothing, key), f"{nothing} cannot be read"),
        (Pair(made, nothing), f"{nothing} cannot be read"),
        (Pair(made, made), "no certificate and its key"),
        (Pair(made, locked), "without a passphrase"),
    ):
        with pytest.raises(UsageError, match=complaint):
            load(pair)
