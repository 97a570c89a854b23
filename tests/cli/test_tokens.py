"""Tokens and the audit by the command line: made, used, listed, revoked; over TLS too."""

import socket
import ssl
import stat
import subprocess
import threading
from contextlib import closing, contextmanager, suppress
from functools import partial

import pytest

from fairnotice.cli import exits
from fairnotice.stores.opening import open_store
from tests.cli.typed import PROGRAM, environment, typed
from tests.control.calling import serving
from tests.waiting import until


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A control plane that wants tokens; the first was made straight in its store."""
    url = f"sqlite:{tmp_path_factory.mktemp('store') / 'fleet.db'}"
    first = typed("token", "create", "root", "--role", "admin", "--store", url)
    assert first.code == exits.DONE
    with serving(open_store(url), auth=True) as served:
        control = f"http://{served.run.control}"

        def type_as(token, *words, **more):
            env = {"FAIRNOTICE_TOKEN": token} if token else {}
            return typed(*words, url=more.pop("url", control), env=env | more)

        type_as.root = first.out.strip()
        type_as.store = url
        type_as.url = control
        type_as.place = served.run.control
        yield type_as


def made(guarded, *words):
    """A new token's text."""
    done = guarded(guarded.root, "token", "create", *words)
    assert done.code == exits.DONE, done.err
    return done.out.strip()


def test_the_secret_is_alone_on_standard_output(guarded):
    """So that it can be sent into a file; what is said about it is on standard error."""
    done = guarded(guarded.root, "token", "create", "ann", "--role", "reader")
    assert done.out.startswith("fairnotice_")
    assert len(done.out.split()) == 1
    assert "not shown again" in done.err
    assert done.out.strip() not in done.err
    assert guarded(done.out.strip(), "vm", "list").code == exits.DONE


def test_the_secret_is_kept_in_a_new_file(guarded, tmp_path):
    """For its owner only; where nothing is made there is no file, and none is overwritten."""
    file = tmp_path / "eve.token"
    words = ("token", "create", "eve", "--role", "reader", "--output", str(file))
    assert typed(*words, url="http://127.0.0.1:1").code == exits.UNREACHABLE
    assert not file.exists()
    done = guarded(guarded.root, *words)
    assert done.code == exits.DONE
    secret = file.read_text().strip()
    assert secret not in done.out + done.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert guarded(secret, "vm", "list").code == exits.DONE
    again = guarded(guarded.root, *words[:2], "eve-2", *words[3:])
    assert again.code == exits.WRONG_USAGE
    assert file.read_text().strip() == secret
    listed = guarded(guarded.root, "token", "list", "--json").json["items"]
    assert "eve-2" not in {token["name"] for token in listed}


def test_it_is_said_where_an_endpoints_token_goes(guarded, tmp_path):
    """It is for a file on a node, and for no command."""
    words = ("--role", "endpoint", "--node", "node-0")
    printed = guarded(guarded.root, "token", "create", "endpoint-a", *words)
    file = str(tmp_path / "endpoint-b.token")
    kept = guarded(guarded.root, "token", "create", "endpoint-b", *words, "--output", file)
    for said in (printed.err, kept.out):
        assert "on node-0: the token_file of its endpoint.toml" in said
        assert "FAIRNOTICE_TOKEN" not in said


def test_a_secret_that_no_file_takes_is_printed(guarded, tmp_path):
    """The token is made by then, and its name given for ever."""
    words = ("token", "create", "fay", "--role", "reader", "--output", str(tmp_path / "fay"))
    ran = subprocess.run(  # noqa: S603 - our own line
        ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *PROGRAM, *words],  # noqa: S607 - anybody's
        env=environment(guarded.url, {"FAIRNOTICE_TOKEN": guarded.root}),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert ran.returncode == exits.REFUSED
    assert "cannot be written" in ran.stderr
    assert guarded(ran.stdout.strip(), "vm", "list").code == exits.DONE


def test_without_a_token_that_counts_nothing_is_done(guarded):
    """And it is said what is missing, and never what was given."""
    for token in ("", "fairnotice_wrong", guarded.root[:-1] + "é", guarded.root[:-3] + "\x01zz"):
        for words in (("vm", "list"), ("event", "watch"), ("audit",)):
            done = guarded(token, *words)
            assert done.code in (exits.REFUSED, exits.WRONG_USAGE)
            assert "FAIRNOTICE_TOKEN" in done.err
            assert guarded.root[-20:-4] not in done.err + done.out


def test_a_user_is_told_what_is_not_his(guarded):
    """By exit code and sentence; his own is restarted."""
    user = made(guarded, "shop", "--role", "operator", "--scope", "availability-set:web")
    assert guarded(user, "vm", "restart", "web-0").code == exits.DONE
    refused = guarded(user, "vm", "restart", "db")
    assert (refused.code, refused.err) == (
        exits.REFUSED,
        "This token may not do that, or there is nothing of the kind that it may see.\n",
    )
    listed = guarded(user, "vm", "list", "--json").json
    assert {row["name"] for row in listed["items"]} == {"web-0", "web-1", "web-2"}
    audit = guarded(guarded.root, "audit", "--who", "shop")
    assert [line.split()[3] for line in audit.out.splitlines()[1:]] == ["403", "202"]
    assert audit.out.count("POST /v1/vms:restart") == 2
    assert guarded(user, "audit").code == exits.REFUSED


def test_tokens_are_listed_and_revoked(guarded):
    """By name or by id; a revoked one is still listed, and counts no longer."""
    bob = made(guarded, "bob", "--role", "operator", "--expires-days", "90")
    assert guarded(bob, "token", "list").code == exits.REFUSED
    assert guarded(guarded.root, "token", "revoke", "bob").code == exits.DONE
    assert guarded(bob, "vm", "list").code == exits.REFUSED
    listed = guarded(guarded.root, "token", "list")
    assert "revoked" in next(line for line in listed.out.splitlines() if "bob" in line)
    assert bob not in listed.out
    assert guarded(guarded.root, "token", "revoke", "nobody").code == exits.NOT_FOUND
    again = guarded(guarded.root, "token", "create", "bob", "--role", "reader")
    assert again.code == exits.REFUSED
    assert "given once" in again.err


def test_whose_identity_a_token_is_limits_nothing_and_is_not_shown_so(guarded):
    """The VM has a column of its own; what the identity may touch is said beside it."""
    words = ("--role", "operator", "--vm", "db")
    for name, more in (("all", ()), ("own", ("--scope", "vm:db"))):
        asked = guarded(guarded.root, "token", "create", name, *words, *more)
        assert asked.code == exits.DONE, asked.err
        assert guarded(guarded.root, "token", "revoke", name).code == exits.DONE
    rows = [line.split() for line in guarded(guarded.root, "token", "list").out.splitlines()]
    assert [row[1:4] for row in rows if row[0] in ("NAME", "all", "own")] == [
        ["ROLE", "LIMITS", "VM"],
        ["operator", "none", "db"],
        ["operator", "vm:db", "db"],
    ]


def test_what_makes_no_sense_is_said_before_anything_is_asked(guarded):
    """A role that there is not, days that are none, a store that is in use."""
    for words in (("--role", "owner"), ("--role", "reader", "--expires-days", "soon")):
        assert guarded(guarded.root, "token", "create", "x", *words).code == exits.WRONG_USAGE
    in_use = typed("token", "list", "--store", guarded.store)
    assert in_use.code == exits.REFUSED
    assert "process" in in_use.err


def test_the_secret_is_not_shown_by_config(guarded):
    """It is a variable, and no setting."""
    shown = guarded(guarded.root, "config", "show", "--json")
    assert guarded.root not in shown.out + shown.err


def test_a_token_is_not_sent_in_the_clear(guarded):
    """To another machine it goes by https or not at all."""
    done = guarded(guarded.root, "vm", "list", url="http://192.0.2.1:8600")
    assert done.code == exits.WRONG_USAGE
    assert "https" in done.err
    assert guarded.root not in done.err


# ---- TLS ----


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost, its key, and itself as the CA."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(  # noqa: S603 - our own line
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-out", str(paths[0]), "-keyout", str(paths[1])),
        ],
        check=True,
        capture_output=True,
        timeout=20,
    )
    return paths


@contextmanager
def behind_tls(place, certificate, key):
    """What a proxy does in front of a control plane: TLS outside, HTTP inside. Its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source, target):
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def serve():
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            with (
                suppress(OSError),
                context.wrap_socket(plain, server_side=True) as outside,
                socket.create_connection(place) as inside,
            ):
                up = threading.Thread(target=partial(pump, outside, inside), daemon=True)
                up.start()
                pump(inside, outside)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_a_control_plane_is_known_by_its_certificate(guarded, certificate, tmp_path):
    """With the CA that signed it commands work, the feed too; without, nothing is sent."""
    with behind_tls(guarded.place, *certificate) as port:
        url = f"https://localhost:{port}"
        ask = partial(guarded, guarded.root, url=url)
        assert ask("vm", "list", "--ca", str(certificate[0])).code == exits.DONE
        assert ask("vm", "list", FAIRNOTICE_CA=str(certificate[0])).code == exits.DONE
        untrusted = ask("vm", "list")
        assert untrusted.code == exits.UNREACHABLE
        assert "--ca" in untrusted.err
        other_name = guarded(
            guarded.root, "vm", "list", "--ca", str(certificate[0]), url=f"https://127.0.0.1:{port}"
        )
        assert other_name.code == exits.UNREACHABLE
        assert "is for another name" in other_name.err
        assert ".." not in other_name.err
        assert "--ca" not in other_name.err
        empty = tmp_path / "empty.pem"
        empty.write_text("nothing\n")
        for path in (empty, tmp_path / "nowhere.pem"):
            wrong = ask("vm", "list", "--ca", str(path))
            assert (wrong.code, str(path) in wrong.err) == (exits.WRONG_USAGE, True)


def test_what_is_made_straight_in_the_store_is_checked_and_written_down(tmp_path):
    """As by the API: a node that is not there is refused, a resource group without VMs is said."""
    url = f"sqlite:{tmp_path / 'fleet.db'}"
    make = partial(typed, "token", "create")
    early = make("early", "--role", "endpoint", "--node", "node-0", "--store", url)
    assert (early.code, "no fleet yet" in early.err) == (exits.DONE, True)
    with serving(open_store(url)):
        pass
    wrong = make("one", "--role", "endpoint", "--node", "nod-0", "--store", url)
    assert wrong.code == exits.NOT_FOUND
    assert "There is no node nod-0. Did you mean node-0" in wrong.err
    group = make("shop", "--role", "reader", "--resource-group", "samle", "--store", url)
    assert group.code == exits.DONE
    assert "No VM is in the resource group samle" in group.err
    assert "Did you mean sample?" in group.err
    assert typed("token", "revoke", "shop", "--store", url).code == exits.DONE
    with closing(open_store(url)) as store:
        lines = [(line.audited.path, line.audited.source) for line in store.audit(9)]
    straight = "straight in the store"
    assert lines == [
        ("/v1/tokens/shop/revoke", straight),
        ("/v1/tokens/shop", straight),
        ("/v1/tokens/early", straight),
    ]


def test_a_resource_group_without_vms_is_said_by_the_control_plane_too(guarded):
    """The token is made: the VMs may come. Groups have no case, as in Azure."""
    make = partial(guarded, guarded.root, "token", "create")
    done = make("later", "--role", "reader", "--resource-group", "later")
    assert done.code == exits.DONE
    assert "No VM is in the resource group later" in done.err
    there = make("there", "--role", "reader", "--resource-group", "SAMPLE")
    assert (there.code, "No VM is in" in there.err) == (exits.DONE, False)


def test_the_audit_of_a_name_that_nobody_has_says_so(guarded):
    """It does not look as if somebody had asked for nothing."""
    made(guarded, "quiet", "--role", "reader")
    ghost = guarded(guarded.root, "audit", "--who", "ghost")
    quiet = guarded(guarded.root, "audit", "--who", "quiet")
    assert "There is no token ghost" in ghost.out
    assert "quiet has asked for nothing" in quiet.out


def test_the_identity_of_a_vm_has_no_secret_and_ends_with_its_vm(tmp_path):
    """By the API and straight in the store: nothing to keep, nothing for a VM that is not there."""
    url = f"sqlite:{tmp_path / 'fleet.db'}"
    words = ("token", "create", "db-id", "--role", "reader", "--vm", "db")
    early = typed(*words, "--store", url)
    assert (early.code, "There is no VM db" in early.err) == (exits.NOT_FOUND, True)
    with serving(open_store(url)) as served:
        control = f"http://{served.run.control}"
        done = typed(*words, url=control)
        assert (done.code, done.out) == (exits.DONE, "")
        assert "db-id, reader, counts until it is revoked. db signs in as it" in done.err
        whole = typed(*words[:2], "db-2", *words[3:], "--json", url=control).json
        assert (whole["secret"], whole["token"]["vm"]) == ("", "db")
        unknown = typed(*words[:2], "c", *words[3:-1], "web-9", url=control)
        assert (unknown.code, "Did you mean web-" in unknown.err) == (exits.NOT_FOUND, True)
        file = tmp_path / "secret"
        kept = typed(*words[:2], "d", *words[3:], "--output", str(file), url=control)
        assert (kept.code, file.exists()) == (exits.WRONG_USAGE, False)
        assert _states(url=control) == {"db-id": "counts", "db-2": "counts"}
        served.post("/v1/vms/db/delete")
        until(lambda: "db" not in served.run.service.fleet.vms, "the end of the VM")
        gone = {"db-id": "VM gone", "db-2": "VM gone"}
        assert _states(url=control) == gone
    with serving(open_store(url)):
        # It is declared anew when that starts.
        pass
    straight = typed(*words[:2], "db-3", *words[3:], "--store", url)
    assert (straight.code, straight.out) == (exits.DONE, "")
    assert _states("--store", url) == {**gone, "db-3": "counts"}


def test_a_vm_that_has_several_identities_is_told_how_to_name_one(tmp_path):
    """By the API and straight in the store; those that are revoked do not count."""
    url = f"sqlite:{tmp_path / 'fleet.db'}"

    def says(name, **where):
        options = ("--role", "reader", "--vm", "db", *where.pop("options", ()))
        done = typed("token", "create", name, *options, **where)
        assert done.code == exits.DONE, done.err
        return f"az login --identity --client-id {name}" in done.err

    with serving(open_store(url)) as served:
        control = f"http://{served.run.control}"
        assert [says(name, url=control) for name in ("one", "two")] == [False, True]
        assert typed("token", "revoke", "one", url=control).code == exits.DONE
    straight = ("--store", url)
    assert says("three", options=straight)
    for name in ("two", "three"):
        assert typed("token", "revoke", name, *straight).code == exits.DONE
    assert not says("four", options=straight)


def _states(*words, **where):
    """What the list says of each token."""
    head, *lines = typed("token", "list", *words, **where).out.splitlines()
    column = slice(head.index("STATE"), head.index(" ID"))
    return {line.split()[0]: line[column].strip() for line in lines}
