"""Mistakes in settings, addresses and ids, and what doctor says of things that only look well."""

import sqlite3
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fairnotice.cli import exits, main, settings
from fairnotice.errors import UsageError
from fairnotice.stores.sqlite.store import SqliteStore
from scripts import reference
from tests.cli.test_up import control, started
from tests.cli.typed import served, typed


@contextmanager
def somebody(status, body):
    """A server that says this to everybody; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def diagnosed(what, *words, url="http://127.0.0.1:1", env=None):
    """What doctor says of one thing: its states and sentences."""
    ended = typed("doctor", "--json", *words, url=url, env=env)
    assert ended.code in (0, 1), ended.err
    return [(one["state"], one["sentence"]) for one in ended.json if one["what"] == what]


# ---- Settings ----


def test_a_mistyped_variable_is_refused():
    """Whoever writes FAIRNOTICE_TIMNG does not get the timing of somebody else."""
    ended = typed("config", "show", env={"FAIRNOTICE_TIMNG": "azure"})

    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "FAIRNOTICE_TIMNG is no setting. Did you mean FAIRNOTICE_TIMING?\n"
    assert typed("up", "--store", "memory:", env={"FAIRNOTICE_TIMNG": "azure"}).code == 2
    assert "Take it away." in typed("vm", "list", env={"FAIRNOTICE_ZZZZ": "1"}).err


def test_what_the_command_driver_hands_on_is_no_mistake(tmp_path):
    """A command of the driver may ask fairnotice itself."""
    environ = dict.fromkeys(settings.DRIVER_VARIABLES, "x") | {"FAIRNOTICE_TOKEN": "x"}

    assert settings.effective({}, environ, (tmp_path / "none", False))


def test_doctor_goes_on_behind_a_mistyped_variable():
    """It says what is mistyped, and looks at the rest."""
    env = {"FAIRNOTICE_TIMNG": "azure"}

    assert diagnosed("settings", env=env) == [
        ("wrong", "FAIRNOTICE_TIMNG is no setting. Did you mean FAIRNOTICE_TIMING?")
    ]
    assert diagnosed("store", env=env)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "http://[::1"),
        ("url", "http://127.0.0.1:99999"),
        ("url", "http://a..b"),
        ("url", "http://:80"),
        ("url", "http://a b"),
        ("metadata_url", "http://127.0.0.1:0"),
        ("store", "sqlite:"),
        ("store", "sqlite://"),
        ("store", "memory:x"),
    ],
)
def test_what_cannot_be_asked_is_no_setting(tmp_path, name, value):
    """A sentence, before anything is tried."""
    with pytest.raises(UsageError, match="Give "):
        settings.effective({name: value}, {}, (tmp_path / "none", False))


def test_bad_addresses_and_stores_are_no_fault_of_fairnotice():
    """Exit code 2; doctor finds it."""
    port = {"FAIRNOTICE_METADATA_URL": "http://127.0.0.1:99999"}
    store = {"FAIRNOTICE_STORE": "sqlite:"}

    for env in (port, store):
        ended = typed("config", "show", env=env)
        assert ended.code == 2
        assert "Give " in ended.err
        ((state, _),) = diagnosed("settings", env=env)
        assert state == "wrong"


# ---- Who answers ----


@pytest.mark.parametrize("path", ["/v1", "/metrics", "/nothing/here"])
def test_an_address_below_the_control_plane_is_none(service, path):
    """The base is meant; exit code 4, and which flag to look at."""
    for words in (("vm", "list"), ("vm", "restart", "web-0"), ("event", "show", "2B9C")):
        ended = typed(*words, url=service.url + path)

        assert ended.code == 4, ended.err
        assert "is no control plane; check --url" in ended.err


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"[]"), (200, b"{}"), (404, b'{"detail":"Not Found"}'), (200, b"<html>"), (500, b"{}")],
)
def test_whoever_else_answers_is_no_control_plane(status, body):
    """Whatever it says."""
    with somebody(status, body) as url:
        ended = typed("vm", "list", url=url)

    assert ended.code == 4, ended.err
    assert "is no control plane; check --url" in ended.err


# ---- Ids ----


def test_a_mistyped_id_is_answered_with_the_nearest(fairnotice):
    """As much of the ids as was typed is compared, not all of them."""
    made = fairnotice("vm", "restart", "web-0", "--not-before", "+1h", "--json").json
    event = made["events"][0]["id"]
    ended = fairnotice("event", "show", f"{event[:7]}x")

    assert (ended.code, ended.out) == (3, "")
    assert ended.err == f"There is no event {event[:7]}x. Did you mean {event[:8]}?\n"


# ---- Several ----


def test_one_refusal_among_several_is_in_the_list(fairnotice):
    """Each answer says whose it is, and what was refused."""
    later = ("--not-before", "+1h", "--json")
    events = fairnotice("vm", "restart", "web-1", "web-2", *later).json["events"]
    started, waiting = (event["id"] for event in events)
    fairnotice("event", "approve", started)
    ended = fairnotice("event", "cancel", started, waiting, "--json")

    assert ended.code == 1
    assert [one["name"] for one in ended.json] == [started, waiting]
    assert "has started" in ended.json[0]["error"]
    assert ended.json[0]["events"] == []
    assert ended.json[1]["error"] is None
    assert [event["id"] for event in ended.json[1]["events"]] == [waiting]
    assert "by itself" in fairnotice("event", "cancel", "--help").out


def test_where_nobody_listens_it_is_said_why_no_event_was_made(tmp_path):
    """Scheduled Events are off in a scope until one of its VMs asks."""
    with served(listeners=("db",)) as there:
        silent = typed("vm", "restart", "web-0", url=there.url)
        told = typed("vm", "restart", "db", url=there.url)
        assert "batch_1" in typed("vm", "delete", "batch_1", url=there.url).err

        # Whatever its scale set says, a Spot VM is deleted without notice: nobody was to be told.
        typed("scale-set", "set-terminate-notice", "spot", "5", url=there.url)
        name = 'name = "spot_0"\n'
        fleet = typed("fleet", "export", url=there.url).out
        mixed = tmp_path / "fleet.toml"
        mixed.write_text(fleet.replace(name, f'{name}priority = "Regular"\n'))
        assert typed("fleet", "apply", "--yes", str(mixed), url=there.url).code == 0
        assert "spot_0" in typed("vm", "delete", "spot_0", url=there.url).err
        assert typed("vm", "delete", "spot_1", url=there.url).err == ""

    assert silent.code == 0
    assert "no event announces it" in silent.out
    assert "web-0: no VM of its scope (availability-set:web) has asked within" in silent.err
    assert "so nobody was told" in silent.err
    assert told.err == ""


# ---- Doctor ----


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"hello"), (404, b'{"error":"x"}'), (200, b"[]"), (403, b"{}")]
)
def test_doctor_knows_a_metadata_endpoint_from_others(status, body):
    """That something answers is not enough."""
    with somebody(status, body) as url:
        ((state, sentence),) = diagnosed("metadata", "--metadata-url", url)

    assert state == "wrong"
    assert "is no metadata endpoint" in sentence


def test_doctor_knows_the_metadata_endpoint(service):
    """By flag; and over TLS nobody answers there."""
    secure = service.metadata.replace("http:", "https:")

    assert diagnosed("metadata", "--metadata-url", service.metadata)[0][0] == "fine"
    assert diagnosed("metadata", "--metadata-url", service.url)[0][0] == "wrong"
    assert diagnosed("metadata", "--metadata-url", secure, url=service.url)[0][0] == "wrong"


def test_doctor_looks_into_the_database(tmp_path):
    """Random bytes, and a database of something else, are none of ours; an empty one may be."""
    noise, other, empty, ours = (tmp_path / name for name in ("noise", "other", "empty", "o?u#rs"))
    noise.write_bytes(bytes(range(1, 256)) * 20)
    empty.touch()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE cake (name TEXT)")
    SqliteStore(ours).close()
    before = noise.read_bytes()

    def found(path):
        return diagnosed("store", env={"FAIRNOTICE_STORE": f"sqlite:{path}"})[0]

    assert found(noise)[0] == "wrong"
    assert "is no SQLite database" in found(noise)[1]
    assert "it holds cake" in found(other)[1]
    assert found(empty) == ("fine", f"{empty} can be written.")
    assert found(ours) == ("fine", f"{ours} can be written.")
    assert noise.read_bytes() == before


# ---- The reference ----


def test_the_reference_shows_the_program_as_it_is(capsys):
    """The same help as `fairnotice --help`, with --version; and every exit code."""
    page = reference.commands()
    with pytest.raises(SystemExit):
        main.main(["--help"])

    assert capsys.readouterr().out.rstrip() in page
    for code, meaning in exits.MEANINGS.items():
        assert f"| {code} | {meaning} |" in page


def test_the_settings_page_says_who_takes_a_flag():
    """As the parsers have it."""
    rows = {line.split("|")[1].strip(): line for line in reference.settings().splitlines()[10:]}

    assert "| `scenario run`, `as`, `doctor` |" in rows["`metadata_url`"]
    assert "| `up` |" in rows["`store`"]
    assert "| all but " in rows["`url`"]


def test_the_file_may_be_named_behind_every_command(tmp_path):
    """Also where no control plane is asked."""
    ended = typed("up", "--config", str(tmp_path / "none"))

    assert ended.code == 2
    assert "is not there" in ended.err
    assert typed("scenario", "list", "--config", "/dev/null").code == 0
    assert typed("scenario", "run", "user-reboot", "--config", str(tmp_path / "none")).code == 2


# ---- Whose it is ----


def test_doctor_says_when_the_endpoint_is_that_of_another_control_plane(service):
    """Both answer, but what is told to one is not heard at the other."""
    with served() as other:
        mixed = diagnosed("metadata", "--metadata-url", other.metadata, url=service.url)
        own = diagnosed("metadata", "--metadata-url", service.metadata, url=service.url)

    ((state, sentence),) = mixed
    assert state == "wrong"
    assert sentence.endswith(f"FAIRNOTICE_METADATA_URL={service.metadata}")
    assert own[0][0] == "fine"


def test_doctor_says_when_the_store_is_that_of_another_control_plane(tmp_path):
    """Whichever way its path is written."""
    store = tmp_path / "own.db"
    with started(tmp_path, "--store", f"sqlite:{store}") as (_, said):
        url = control(said)
        same = f"sqlite:{tmp_path}/../{tmp_path.name}/own.db"
        own = diagnosed("store", url=url, env={"FAIRNOTICE_STORE": same})
        other = diagnosed("store", url=url, env={"FAIRNOTICE_STORE": f"sqlite:{tmp_path}/b.db"})

    assert own[0][0] == "fine"
    ((state, sentence),) = other
    assert state == "note"
    assert sentence.startswith(f"{url} keeps its state in sqlite:{store}; one that you start here")
