"""`fairnotice serve` as systemd starts, reloads and ends it: the real process."""

import http.client
import json
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest

from fairnotice.cli.serve_check import not_looked_at
from tests.cli.serves import (
    DOCUMENT,
    FLEET,
    ON_POSTGRES,
    PLAIN,
    certificate,
    serves,
)
from tests.cli.typed import typed
from tests.ports import own_port
from tests.waiting import until

# Waits until somebody lets it go on.
REBOOT = """
echo begun >> {folder}/ledger
while [ ! -e {folder}/go ]; do sleep 0.05; done
echo done >> {folder}/ledger
"""
DRIVER = """
[driver]
kind = "command"
state_directory = "{folder}/impacts"
[driver.commands]
reboot = ["sh", "{folder}/reboot"]
"""


def restart(it, vm="web"):
    """Restart a VM at once, where it has asked for nothing yet."""
    return it.call("POST", f"/v1/vms/{vm}/restart")


@contextmanager
def greedy(tmp_path):
    """Somebody who lets nobody else write to the database; until he is closed."""
    with closing(sqlite3.connect(tmp_path / "it.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_systemd_is_told_of_a_whole_life(tmp_path):
    """Ready, that it lives, reloading and ready again, stopping; and it ends with 0."""
    with serves(tmp_path, WATCHDOG_USEC="400000") as it:
        assert "STATUS=Serves http://127.0.0.1:" in it.said
        it.told("WATCHDOG=1")
        it.told("WATCHDOG=1")
        it.process.send_signal(signal.SIGHUP)
        begun = it.told("RELOADING=1").partition("MONOTONIC_USEC=")[2]
        assert int(begun) > 0
        it.told("READY=1")
        assert it.end() == 0
        it.told("STOPPING=1")
        assert "fairnotice has ended" in it.log


def test_systemd_is_told_of_trouble(tmp_path):
    """`systemctl status` says why nothing is recorded."""
    with serves(tmp_path, WATCHDOG_USEC="200000") as it:
        it.call("PUT", "/v1/fleet", FLEET)
        with closing(sqlite3.connect(tmp_path / "it.db", isolation_level=None)) as other:
            other.execute("DROP TABLE journal")
        assert restart(it).status == 503
        assert "no such table: journal" in it.told("STATUS=Records nothing: ")
        assert it.end() == 0


def test_a_reload_takes_what_it_can_and_says_what_it_cannot(tmp_path):
    """One line each; a broken file changes nothing, and a restart is asked for again."""
    text = PLAIN.format(folder=tmp_path)
    with serves(tmp_path) as it:
        assert it.call("GET", "/v1/vms", Host="cp.example.net").status == 403
        changed = text.replace("127.0.0.1:0", "127.0.0.1:1", 1)
        changed = changed.replace("[auth]", 'names = ["CP.example.net"]\n[auth]')
        it.hang_up(changed)
        assert it.call("GET", "/v1/vms", Host="cp.example.net").status == 200
        assert "control.names is ['CP.example.net'] now, and was []" in it.log
        assert "control.listen has changed" in it.log
        it.hang_up("timing = 3\n" + text)
        assert "kept as it was: " in it.log
        assert "`timing`" in it.log
        assert it.call("GET", "/v1/vms", Host="cp.example.net").status == 200
        it.hang_up(text + "[retention]\nhistory_days = 5\n")
        assert "retention.history_days is 5 now, and was 90" in it.log
        assert it.call("GET", "/v1/vms", Host="cp.example.net").status == 403
        assert it.log.count("needs a restart") == 1
        assert it.end() == 0


def test_certificates_are_renewed_by_a_reload(tmp_path):
    """Whoever trusts the new one is answered; with a broken one, the one before serves on."""
    made, key = certificate(tmp_path)
    text = PLAIN + f'[tls]\ncertificate = "{made}"\nkey = "{key}"\n'
    with serves(tmp_path, text) as it:
        before = ssl.create_default_context(cafile=made)
        assert it.call("GET", "/readyz", trust=before).status == 200
        newer, new_key = certificate(tmp_path, "newer")
        whole = text.format(folder=tmp_path).replace(str(made), str(newer))
        it.hang_up(whole)
        assert "no certificate and its key" in it.log
        assert it.call("GET", "/readyz", trust=before).status == 200
        it.hang_up(whole.replace(str(key), str(new_key)))
        after = ssl.create_default_context(cafile=newer)
        assert it.call("GET", "/readyz", trust=after).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            it.call("GET", "/readyz", trust=before)
        page = it.call("GET", "/metrics", trust=after).body.decode()
        assert "\nfairnotice_certificate_expires_seconds 2" in page


def test_whoever_asks_without_tls_is_told_to_ask_with_it(tmp_path):
    """It is a control plane, and answers nobody who speaks to it in the clear."""
    made, key = certificate(tmp_path)
    with serves(tmp_path, PLAIN + f'[tls]\ncertificate = "{made}"\nkey = "{key}"\n') as it:
        host, port = it.control
        ended = typed("vm", "list", url=f"http://{host}:{port}/")
        ended_well = typed("vm", "list", "--ca", str(made), url=f"https://{host}:{port}/")
    assert ended.code == 4
    said = f"What answers at http://{host}:{port} speaks TLS: ask by --url https://{host}:{port} or"
    assert ended.err.startswith(said)
    assert "--ca FILE" in ended.err
    assert ended_well.code == 0


@pytest.mark.parametrize("what", ["command", "approval"])
def test_its_end_finishes_what_is_under_way(tmp_path, what):
    """A command or an approval is answered, feeds end, nobody new is let in; it ends with 0."""
    with serves(tmp_path) as it, ExitStack() as open_ones:

        def begun(place, method, path, body=None):
            return open_ones.enter_context(sent(place, method, path, body))

        assert it.call("PUT", "/v1/fleet", FLEET).status == 200
        it.look()
        assert restart(it).status == 202
        (event,) = it.look().json["Events"]
        following = begun(it.control, "GET", "/v1/feed?after=0").getresponse()
        following.readline()
        other = open_ones.enter_context(greedy(tmp_path))
        if what == "command":
            asked = begun(it.control, "POST", f"/v1/events/{event['EventId']}/approve")
        else:
            approval = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
            asked = begun(it.metadata, "POST", DOCUMENT, approval)
        # What came before this has been read before it.
        assert it.call("GET", "/healthz").status == 200
        it.process.send_signal(signal.SIGTERM)
        it.told("STOPPING=1")
        until(lambda: refused(it.control if what == "command" else it.metadata))
        other.close()
        assert asked.getresponse().status == (202 if what == "command" else 200)
        # Its last chunk says that it is the last, or this would raise.
        following.read()
        assert it.process.wait(10) == 0
        assert "Traceback" not in it.log
    with serves(tmp_path) as again:
        found = again.call("GET", f"/v1/events/{event['EventId']}").json
        by = "operator" if what == "command" else "web"
        assert [one["by"] for one in found["approvals"]] == [by]


@contextmanager
def sent(place, method, path, body=None):
    """A request whose answer is for later."""
    connection = http.client.HTTPConnection(*place, timeout=10)
    with closing(connection):
        connection.request(method, path, body, {"Metadata": "true"})
        yield connection


def refused(place):
    """Whether nobody listens there any more."""
    with socket.socket() as visitor:
        return visitor.connect_ex(place) != 0


def test_whoever_ends_it_twice_does_not_wait(tmp_path):
    """The database takes nothing, so the first time alone would wait for it."""
    with serves(tmp_path) as it:
        it.call("PUT", "/v1/fleet", FLEET)
        with greedy(tmp_path), sent(it.control, "POST", "/v1/vms/db/restart") as asked:
            assert it.call("GET", "/healthz").status == 200
            it.process.send_signal(signal.SIGTERM)
            it.told("STOPPING=1")
            it.process.send_signal(signal.SIGTERM)
            assert it.process.wait(10) == 130
            with pytest.raises(ConnectionError):
                asked.getresponse()


def test_impacts_go_on_when_it_ends(tmp_path):
    """The command of the driver ends after the control plane, and was run once."""
    ledger = tmp_path / "ledger"
    (tmp_path / "reboot").write_text(REBOOT.format(folder=tmp_path))
    with serves(tmp_path, PLAIN + DRIVER) as it:
        it.call("PUT", "/v1/fleet", FLEET)
        assert restart(it).status == 202
        until(ledger.exists)
        assert it.end() == 0
        assert ledger.read_text() == "begun\n"
    (tmp_path / "go").touch()
    until(lambda: ledger.read_text() == "begun\ndone\n")
    with serves(tmp_path, PLAIN + DRIVER) as again:
        until(lambda: ended(again))
    assert ledger.read_text() == "begun\ndone\n"


def ended(it):
    """Whether the one operation that there is was completed."""
    (operation,) = it.call("GET", "/v1/operations").json["items"]
    return operation["status"] == "Completed"


@pytest.mark.parametrize("right", [True, False])
def test_a_check_says_what_is_wrong_and_starts_nothing(tmp_path, right):
    """2 and the key where something is; and there is no database afterwards."""
    path = tmp_path / "serve.toml"
    text = PLAIN.format(folder=tmp_path)
    path.write_text(text if right else text.replace("listen", "lisen", 1))
    line = [sys.executable, "-m", "fairnotice", "serve", "--config", str(path), "--check"]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert ran.returncode == (0 if right else 2)
    wrong = f"{path}: unknown key `control.lisen`; did you mean `listen`?\n"
    fits = f"{path} can be served. {not_looked_at('simulated')}\n"
    assert (ran.stdout, ran.stderr) == ((fits, "") if right else ("", wrong))
    assert not (tmp_path / "it.db").exists()


@pytest.mark.parametrize(
    ("place", "code", "why"),
    [
        ("169.254.7.7:80", 1, "no interface of this machine has this address yet"),
        ("{taken}", 1, "it is taken by"),
    ],
)
@pytest.mark.parametrize("what", ["control", "metadata"])
def test_an_address_that_is_not_to_be_had_yet_is_tried_again(tmp_path, what, place, code, why):
    """By systemd, which tries nothing again that ended with 2; the key is named, and no flag."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = place.format(taken="{}:{}".format(*taken.getsockname()))
        text = PLAIN.format(folder=tmp_path).replace(
            f'[{what}]\nlisten = "127.0.0.1:0"', f'[{what}]\nlisten = "{place}"'
        )
        if what == "control":
            text = text.replace('0"\n[auth]', '0"\nbehind_proxy = true\n[auth]')
        path = tmp_path / "serve.toml"
        path.write_text(text)
        line = [sys.executable, "-m", "fairnotice", "serve", "--config", str(path)]
        ran = subprocess.run(line, capture_output=True, text=True, check=False, timeout=20)  # noqa: S603 - our own
    assert ran.returncode == code
    assert f"{path}: {what}.listen: {place} cannot be listened on: {why}" in ran.stderr
    assert f"--{what}" not in ran.stderr


def test_an_endpoint_whose_address_is_not_there_yet_is_tried_again(tmp_path):
    """A node that boots in the wrong order has an endpoint all the same, without anybody's help."""
    path = tmp_path / "endpoint.toml"
    path.write_text(
        f'node = "n"\ncontrol_planes = ["http://127.0.0.1:1"]\nstate_directory = "{tmp_path}"\n'
        '[metadata]\nlisten = "169.254.7.7:80"\n[metrics]\nlisten = "off"\n'
    )
    ended = typed("endpoint", "--config", str(path))
    assert ended.code == 1
    assert (
        f"{path}: metadata.listen: 169.254.7.7:80 cannot be listened on: no interface" in ended.err
    )


CLUSTER = """
[store]
url = "{url}"
[control]
listen = "127.0.0.1:{port}"
[tls]
certificate = "{certificate}"
key = "{key}"
[auth]
required = false
[cluster]
address = "https://127.0.0.1:{port}"
trust = "{certificate}"
"""


def test_two_of_them_share_a_database(tmp_path, postgres_url):
    """What is asked of the one that follows the leader does; when that ends, the other leads."""
    certificate_file, key = certificate(tmp_path / "certificates")
    trust = ssl.create_default_context(cafile=certificate_file)
    with ExitStack() as stack:
        members = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            port = own_port()
            files = {"certificate": certificate_file, "key": key}
            text = CLUSTER.format(url=postgres_url, port=port, **files)
            it = stack.enter_context(serves(tmp_path / name, text))
            members.append(it)
            until(lambda: members[0].call("GET", "/readyz", trust=trust).json["leading"])
        leader, other = members
        until(lambda: other.call("GET", "/readyz", trust=trust).json["leader"])
        assert other.call("PUT", "/v1/fleet", FLEET, trust=trust).status == 200
        assert other.call("GET", "/v1/vms/web", trust=trust).status == 200
        assert not other.call("GET", "/readyz", trust=trust).json["leading"]
        assert leader.end() == 0
        until(lambda: other.call("GET", "/readyz", trust=trust).json["leading"])
        assert other.call("POST", "/v1/vms/db/restart", trust=trust).status == 202
        assert other.end() == 0


def status_of(port, path):
    """What is answered there; None where nobody is."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None


def test_it_waits_for_a_database_that_is_away_when_it_starts(tmp_path, postgres_server):
    """Alive and not ready, which is said once; it serves when the database is there."""
    url, port = postgres_server.new_database(), own_port()
    postgres_server.stop()

    def come_back():
        try:
            until(lambda: status_of(port, "/readyz") == 503)
            return status_of(port, "/healthz"), status_of(port, "/v1/vms")
        finally:
            postgres_server.start()

    with ThreadPoolExecutor(1) as pool:
        looked = pool.submit(come_back)
        with serves(tmp_path, ON_POSTGRES.format(url=url, port=port)) as it:
            assert looked.result() == (200, 503)
            assert it.call("GET", "/readyz").status == 200
            assert it.log.count("waits for the database: open: ") == 1
            assert "the database is there" in it.log
            assert it.end() == 0
