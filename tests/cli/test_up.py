"""`fairnotice up`, as a person starts it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from urllib.request import urlopen

import pytest

from fairnotice.cli.up import FleetFile, declare
from fairnotice.control.fleet_files import read_toml
from tests.control.calling import serving

ROOT = Path(__file__).parents[2]
FAIRNOTICE = [sys.executable, "-m", "fairnotice"]
FREE = ("--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0")


@contextmanager
def started(tmp_path, *options):
    """The service, once it has said that it is up; and what it said."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*FAIRNOTICE, "up", *FREE, *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = []
        while line := process.stdout.readline():
            said.append(line)
            if line.startswith("curl") and "approve" in line:
                break
        yield process, "".join(said)
    finally:
        process.kill()
        process.communicate()


def lines(said):
    """The lines that a person copies."""
    return [line for line in said.splitlines() if line.startswith("curl")]


def shell(line):
    """What a person sees who pastes this."""
    ran = subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True)  # noqa: S603, S607
    return json.loads(ran.stdout)


def control(said):
    """Where the control plane is."""
    return re.search(r"http://127\.0\.0\.1:\d+", said)[0]


def test_the_three_lines_work(tmp_path):
    """Read as a VM, restart it, approve it: it starts at once."""
    with started(tmp_path, "--store", "memory:") as (_, said):
        assert f"\nexport FAIRNOTICE_URL={control(said)}\n" in said
        read, restart, approve = lines(said)
        assert shell(read) == {"DocumentIncarnation": 1, "Events": []}
        (announced,) = shell(restart)["events"]
        assert announced["status"] == "Scheduled"
        (event,) = shell(read)["Events"]
        assert event["EventId"] == announced["id"]
        # It is read before it is copied: no quote in it needs another around it.
        assert "'\"'" not in approve
        assert shell(approve)["events"][0]["status"] == "Started"
        assert shell(read)["Events"][0]["EventStatus"] == "Started"


def test_the_third_line_says_when_there_is_nothing_to_approve(tmp_path):
    """No traceback, whatever the order."""
    with started(tmp_path, "--store", "memory:") as (_, said):
        problem = shell(lines(said)[2])
        assert problem["status"] == 404
        assert "NOTHING-IS-ANNOUNCED" in problem["detail"]


def test_a_name_that_is_no_plain_word_is_quoted(tmp_path):
    """What is copied into a shell does what it says, whatever a VM is called."""
    path = tmp_path / "fleet.toml"
    path.write_text('[[node]]\nname = "n"\n[[vm]]\nname = "a\'; touch x"\nnode = "n"\n')
    with started(tmp_path, "--store", "memory:", "--fleet", str(path)) as (_, said):
        read, restart, _ = lines(said)
        assert shell(read) == {"DocumentIncarnation": 1, "Events": []}
        assert shell(restart)["events"][0]["resources"] == ["a'; touch x"]
        assert not (ROOT / "x").exists()


def test_off_loopback_the_lines_say_that_the_prefix_is_off(tmp_path):
    """Anybody could say there that he is any VM."""
    options = ("--store", "memory:", "--metadata", "0.0.0.0:0")
    with started(tmp_path, *options) as (_, said):
        assert "/vm/" not in lines(said)[0]
        assert "from an address of its own" in said


def test_it_ends_cleanly_in_the_middle_of_a_request(tmp_path):
    """Half a body is on its way; nobody is shown a traceback for it."""
    with started(tmp_path, "--store", "memory:") as (process, said):
        host, port = control(said).removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as half:
            half.sendall(f"POST /v1/vms/web-0/restart HTTP/1.1\r\nHost: {host}:{port}\r\n".encode())
            half.sendall(b"Content-Length: 100\r\n\r\n{")
            Event().wait(0.2)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=3) == 0
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_within_two_seconds(tmp_path, number):
    """Also while somebody follows the feed and a VM waits."""
    with started(tmp_path, "--store", "memory:") as (process, said):
        line = ["curl", "-sN", f"{control(said)}/v1/feed?after=0"]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL) as following:  # noqa: S603
            Event().wait(0.2)
            process.send_signal(number)
            assert process.wait(timeout=2) == 0
            following.wait(timeout=5)
        assert process.stderr.read() == ""


def test_the_second_start_keeps_the_state(tmp_path):
    """What was announced is still there; with memory: it is not."""
    with started(tmp_path, "--timing", "azure") as (process, said):
        assert "FAIRNOTICE_STORE" not in said
        read, restart, _ = lines(said)
        shell(read)
        shell(restart)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=5)
    with started(tmp_path, "--timing", "azure") as (_, said):
        assert len(shell(lines(said)[0])["Events"]) == 1
    with started(tmp_path, "--store", "memory:") as (_, said):
        assert shell(lines(said)[0])["Events"] == []


def test_a_second_one_on_the_same_store_is_refused(tmp_path):
    """It says which process has it."""
    with started(tmp_path) as (first, _), started(tmp_path) as (second, said):
        assert not said
        assert second.wait(timeout=5) == 1
        complaint = second.stderr.read()
        assert str(first.pid) in complaint
        assert "fairnotice up --store memory: " in complaint


def test_a_port_that_is_taken_is_said_by_whom(tmp_path):
    """And how to choose another."""
    with started(tmp_path, "--store", "memory:") as (first, said):
        place = control(said).removeprefix("http://")
        options = ("--store", "memory:", "--control", place)
        with started(tmp_path, *options) as (second, _):
            assert second.wait(timeout=5) == 2
            complaint = second.stderr.read()
        assert f"process {first.pid}" in complaint
        assert "Choose another with --control HOST:PORT." in complaint
        assert "fairnotice up --store memory: --metadata 127.0.0.1:0" in complaint


def test_where_only_the_port_of_azures_tools_is_taken_the_advice_is_good(tmp_path):
    """The line that is told there starts another beside the first."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with started(tmp_path, "--store", "memory:", "--arm", place) as (process, _):
            assert process.wait(timeout=5) == 2
            complaint = process.stderr.read()
        assert "Choose another with --arm HOST:PORT." in complaint
        advice = complaint.partition("To run another beside it: fairnotice up ")[2].split()
        with started(tmp_path, "--arm", place, *advice) as (_, said):
            assert control(said)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--fleet", "nowhere.toml"), "nowhere.toml cannot be read"),
        (("--rate-limit", "many"), "rate"),
        (("--metadata", "nowhere"), "HOST:PORT"),
        (("--store", "mysql:x"), "memory:"),
        (("--timing", "slow"), "azure"),
        (("--arm", "0.0.0.0:0"), "nobody is asked who he is"),
        (("--arm", "nowhere"), "HOST:PORT"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, options, complaint):
    """In a sentence, before anything is begun."""
    with started(tmp_path, *options) as (process, said):
        assert not said
        assert process.wait(timeout=5) == 2
        assert complaint in process.stderr.read()


def test_a_fleet_of_ones_own(tmp_path):
    """Instead of the sample fleet."""
    path = tmp_path / "fleet.toml"
    path.write_text('[[node]]\nname = "n"\n[[vm]]\nname = "solo"\nnode = "n"\n')
    with started(tmp_path, "--store", "memory:", "--fleet", str(path)) as (_, said):
        found = shell(f"curl -s {control(said)}/v1/vms")
        assert [vm["name"] for vm in found["items"]] == ["solo"]
        assert "/vm/solo/" in lines(said)[0]


def test_a_fleet_that_cannot_be_applied_yet_keeps_nobody_from_what_there_is(tmp_path):
    """A live event forbids what the file asks: with the service down it would never be over."""
    path = tmp_path / "fleet.toml"
    row = '[[node]]\nname = "n"\n[[node]]\nname = "m"\n[[vm]]\nname = "db"\n'
    path.write_text(f'{row}node = "n"\n')
    options = ("--timing", "azure", "--fleet", str(path))
    with started(tmp_path, *options) as (process, said):
        for line in lines(said)[:2]:
            shell(line)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=5)
    path.write_text(f'{row}node = "m"\n')
    with started(tmp_path, *options) as (process, said):
        assert len(shell(lines(said)[0])["Events"]) == 1
        assert shell(f"curl -s {control(said)}/v1/vms/db")["node"] == "n"
        process.send_signal(signal.SIGINT)
        complaint = process.stderr.read()
    assert f"{path} is not applied, the fleet is as it was: While " in complaint
    assert f"fairnotice fleet apply {path}" in complaint
    # One that is wrong stays so, whether there is a fleet to go on with or none.
    path.write_text('[[vm]]\nname = "db"\nnode = "nowhere"\n')
    for more in ((), ("--store", "memory:")):
        with started(tmp_path, *more, *options) as (process, _):
            assert process.wait(timeout=5) == 2
            assert "nowhere" in process.stderr.read()


def test_a_fleet_for_which_there_is_no_room_yet_keeps_nobody_from_what_there_is(caplog):
    """An impact that moves a VM holds two places until it is over, which it is while this runs."""
    body = read_toml(
        '[[node]]\nname = "n"\ncapacity = 1\n'
        + "".join(f'[[vm]]\nname = "{name}"\nnode = "n"\n' for name in ("a", "b")),
        "fleet.toml",
    )
    with serving() as served:
        before = served.get("/v1/vms").json
        served.inside(declare(served.run, FleetFile("fleet.toml", body)))
        assert served.get("/v1/vms").json == before
    assert "fleet.toml is not applied, the fleet is as it was: n has 1 slots" in caplog.text


def test_the_portal_is_at_its_front(tmp_path):
    """A page with a policy of its own: a second would forbid its styles."""
    with started(tmp_path, "--store", "memory:") as (_, said):
        with urlopen(f"{control(said)}/") as answer:  # noqa: S310, our own program
            page = answer.read().decode()
            (policy,) = answer.headers.get_all("Content-Security-Policy")
        assert "/v1/vms/web-0/restart" in page
        assert "style-src 'self'" in policy


@pytest.mark.parametrize(("options", "there"), [((), True), (("--arm", "off"), False)])
def test_azures_tools_are_served_unless_somebody_says_no(tmp_path, options, there):
    """Off, neither an authority nor a key is made."""
    store = f"sqlite:{tmp_path}/it.db"
    with started(tmp_path, "--store", store, *options) as (process, begins):
        assert (tmp_path / "azure-tools" / "ca.pem").exists() is there
        # Only az-login looks beside it.
        assert (f"\nexport FAIRNOTICE_STORE={store}\n" in begins) is there
        process.terminate()
        said = process.stdout.read()
    assert ("az, at https://localhost:" in said) is there
    programs = re.findall(r'^eval "\$\((\S+) az-login\)"', said, re.MULTILINE)
    assert len(programs) == there
    for program in programs:
        # Another terminal has another PATH; were it not found, az would go on as its own.
        assert Path(program).is_absolute()
        assert os.access(program, os.X_OK)
