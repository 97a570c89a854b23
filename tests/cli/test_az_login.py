"""`fairnotice az-login` without az, or where nobody answers; with az: tests/arm/test_tools.py."""

import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fairnotice.cli import exits
from tests.cli.serves import certificate
from tests.cli.test_up import FAIRNOTICE, ROOT, control, started
from tests.ports import own_port

DIRECTORY = "as-az-reads-it"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A service on ports that nobody knows, and what belongs to it."""
    folder = tmp_path_factory.mktemp("home")
    with started(folder, "--store", f"sqlite:{folder}/it.db") as (_, said):
        yield folder, control(said)


def az_login(home, *options, by=FAIRNOTICE, stdout=subprocess.PIPE, **environment):
    """What it came to, without az."""
    folder, url = home
    clean = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    store = {"FAIRNOTICE_STORE": f"sqlite:{folder}/it.db", "FAIRNOTICE_URL": url}
    return subprocess.run(  # noqa: S603 - our own program
        [*by, "az-login", "--directory", str(folder / DIRECTORY), *options],
        cwd=ROOT,
        env={**clean, **store, "PATH": "/nowhere", "XDG_CONFIG_HOME": str(folder), **environment},
        check=False,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def program(folder, name, script):
    """A folder in which a program of this name is, for a PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
    (folder / name).chmod(0o755)
    return str(folder)


def stops(done):
    """Whether it failed, said why, and no az goes on where a shell runs what was printed."""
    line = 'eval "$1" && echo went-on; echo "at $AZURE_CONFIG_DIR"'
    for shell in ("sh", "bash"):
        ran = subprocess.run(  # noqa: S603 - a line of ours
            [shutil.which(shell), "-c", line, shell, done.stdout],
            env={"AZURE_CONFIG_DIR": "/somebody/s/own"},
            check=True,
            capture_output=True,
            text=True,
        )
        assert ran.stdout == "at /dev/null/az-login-failed\n", done.stdout
    assert "With unset AZURE_CONFIG_DIR it is your own again." in done.stderr
    return done.returncode != 0


def found(home):
    """Where az would ask."""
    text = (home[0] / DIRECTORY / "clouds.config").read_text()
    return text.partition("endpoint_resource_manager = ")[2].splitlines()[0]


def test_it_finds_what_the_control_plane_serves(home):
    """Whatever its port is; an address is written as the certificate has it."""
    done = az_login(home)
    assert done.returncode == 0, done.stderr
    assert "There is no az here." in done.stderr
    url = found(home)
    place = url.replace("https://localhost", "127.0.0.1")
    assert place != "127.0.0.1:8643"
    for words in (("--arm", url), ("--arm", place), ("--arm", f"https://{place}/")):
        (home[0] / DIRECTORY / "clouds.config").unlink()
        assert az_login(home, *words).returncode == 0
        assert found(home) == url
    assert az_login(home, FAIRNOTICE_ARM=place, FAIRNOTICE_URL="http://127.0.0.1:1").returncode == 0
    assert found(home) == url


def test_what_is_not_behind_a_proxy_stays_so(home):
    """Each host is written once, in both spellings, after what was there in either."""
    every = "a.example,localhost,b.example,127.0.0.1,169.254.169.254"
    done = az_login(home, NO_PROXY="a.example,localhost", no_proxy="b.example,a.example")
    assert f"export NO_PROXY={every}\n" in done.stdout
    assert f"export no_proxy={every}\n" in done.stdout
    done = az_login(home, no_proxy="b.example")
    assert "export NO_PROXY=b.example,localhost,127.0.0.1,169.254.169.254\n" in done.stdout


def test_whoever_was_trusted_in_this_terminal_still_is(home, tmp_path):
    """What az heeds, pip heeds too: the system's own, by file and directory, and what was set."""
    folder = tmp_path / "directory"
    folder.mkdir()
    (folder / "README").write_text("no certificate")
    system, listed, company = (
        certificate(place, name)[0]
        for place, name in ((tmp_path, "system"), (folder, "listed"), (tmp_path, "company"))
    )
    trusts = {"SSL_CERT_FILE": str(system), "SSL_CERT_DIR": str(folder)}
    bundle = home[0] / DIRECTORY / "ca-bundle.pem"
    for before in (company, bundle):
        done = az_login(home, REQUESTS_CA_BUNDLE=str(before), **trusts)
        assert f"export REQUESTS_CA_BUNDLE={bundle}\n" in done.stdout, done.stderr
        found = ssl.create_default_context(cafile=bundle).get_ca_certs(binary_form=True)
        own = home[0] / "azure-tools" / "ca.pem"
        assert f"export NODE_EXTRA_CA_CERTS={own}\n" in done.stdout
        wanted = (own, system, listed, company)
        assert set(found) == {ssl.PEM_cert_to_DER_cert(one.read_text()) for one in wanted}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--arm", f"localhost:{own_port()}"), "Start one with: fairnotice up; or see --arm."),
        (("--arm", "ftp://localhost"), "give HOST:PORT or https://HOST:PORT"),
        (("--authority", "tests/fixtures/nobody.pem"), "is not there"),
    ],
)
def test_a_login_that_cannot_be_leaves_the_last_one_alone(home, words, said):
    """The shell is told to stop, and nothing is written."""
    assert az_login(home).returncode == 0
    before = found(home)
    done = az_login(home, *words)
    assert stops(done)
    assert said in done.stderr
    assert found(home) == before


def test_one_for_whom_nobody_vouches_is_told(home):
    """Its certificate is not of whom the system trusts."""
    url = found(home) if az_login(home).returncode == 0 else ""
    done = az_login(home, "--arm", url, FAIRNOTICE_STORE=f"sqlite:{home[0]}/elsewhere/it.db")
    assert "Nobody whom you trust vouches for" in done.stderr
    assert stops(done)


@pytest.mark.parametrize("by", ["--authority", "--ca", "FAIRNOTICE_CA"])
def test_whom_it_trusts_the_tools_are_to_trust(home, by):
    """As every other command does."""
    url = found(home) if az_login(home).returncode == 0 else ""
    ca = str(home[0] / "azure-tools" / "ca.pem")
    words = () if by == "FAIRNOTICE_CA" else (by, ca)
    elsewhere = {"FAIRNOTICE_STORE": f"sqlite:{home[0]}/elsewhere/it.db"}
    given = {"FAIRNOTICE_CA": ca} if by == "FAIRNOTICE_CA" else {}
    done = az_login(home, "--arm", url, *words, **elsewhere, **given)
    assert done.returncode == 0, done.stderr
    assert f"export NODE_EXTRA_CA_CERTS={ca}\n" in done.stdout


@pytest.mark.parametrize("by", ["--authority", "--ca", "FAIRNOTICE_CA", "FAIRNOTICE_STORE"])
def test_a_file_in_which_nobody_vouches_is_named(home, tmp_path, by):
    """A key, or half a certificate: the mistake is that of whoever gave it, and is his to mend."""
    assert az_login(home).returncode == 0
    before = found(home)
    own = home[0] / "azure-tools"
    wrong = tmp_path / "azure-tools" / "ca.pem"
    wrong.parent.mkdir()
    for text in ((own / "ca.key").read_text(), (own / "ca.pem").read_text()[:300]):
        wrong.write_text(text)
        words = (by, str(wrong)) if by.startswith("-") else ()
        value = f"sqlite:{tmp_path}/it.db" if by == "FAIRNOTICE_STORE" else str(wrong)
        done = az_login(home, *words, **({} if words else {by: value}))
        assert f"{wrong} holds no CA certificates" in done.stderr
        assert "--authority" in done.stderr
        assert done.returncode == exits.WRONG_USAGE
        assert stops(done)
    assert found(home) == before


def test_whom_the_system_trusts_is_believed_where_up_has_run_too(home, tmp_path):
    """Its authority vouches for it alone; another's is known to the system, unless one is said."""
    with started(tmp_path, "--store", f"sqlite:{tmp_path}/it.db") as (_, said):
        elsewhere = (tmp_path, control(said))
        assert az_login(elsewhere).returncode == 0
        system = {"SSL_CERT_FILE": str(tmp_path / "azure-tools" / "ca.pem")}
        url, own = found(elsewhere), str(home[0] / "azure-tools" / "ca.pem")
        done = az_login(home, "--arm", url, **system)
        assert done.returncode == 0, done.stderr
        assert az_login(home, **system).returncode == 0
        done = az_login(home, "--arm", url, "--authority", own, **system)
    assert "Nobody whom you trust vouches for" in done.stderr


def test_the_lines_that_up_prints_are_enough_in_another_terminal(tmp_path):
    """It has another directory, and knows nothing of a store that is not the usual one."""
    folder = tmp_path / "a store"
    folder.mkdir()
    az = program(tmp_path / "bin", "az", f'echo "$@ $AZURE_CONFIG_DIR" >> {tmp_path}/asked')
    store = f"sqlite:{os.path.relpath(folder / 'it.db', ROOT)}"
    with started(tmp_path, "--store", store) as (process, said):
        printed = said.splitlines()
        while not printed[-1].startswith("eval"):
            line = process.stdout.readline()
            assert line, "it ended before it had said all"
            printed.append(line.rstrip())
        pasted = [line for line in printed if line.startswith(("export", "eval"))]
        done = subprocess.run(  # noqa: S603 - the lines that were printed
            [shutil.which("bash"), "-ec", "\n".join(pasted)],
            cwd=tmp_path,
            env={"PATH": f"{az}:{os.environ['PATH']}", "HOME": str(tmp_path)},
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()[-1]
    words, _, directory = asked.partition(" table ")
    assert (words, Path(directory).resolve()) == ("vm list -o", folder / "azure")


def made_token(home, name, *limits):
    """The secret of a new token."""
    words = ["token", "create", name, "--role", "reader", *limits, "--json"]
    made = subprocess.run(  # noqa: S603 - our own program
        [*FAIRNOTICE, *words],
        env={**os.environ, "FAIRNOTICE_URL": home[1]},
        check=True,
        capture_output=True,
    )
    return json.loads(made.stdout)["secret"]


def test_whoever_may_see_a_part_is_told_where_azures_tools_ask(home):
    """Though not where all the rest is."""
    (home[0] / DIRECTORY / "clouds.config").unlink(missing_ok=True)
    done = az_login(home, FAIRNOTICE_TOKEN=made_token(home, "shop", "--scope", "vm:db"))
    assert done.returncode == 0, done.stderr
    assert "az login --service-principal -u shop" in done.stderr
    assert not found(home).endswith(":8643")


def test_the_secret_is_in_no_file_and_in_nothing_that_is_printed(home):
    """And how to log in with it is said, by the name that az shows then."""
    secret = made_token(home, "ann")
    done = az_login(home, FAIRNOTICE_TOKEN=secret)
    files = list((home[0] / DIRECTORY).iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    texts = [path.read_text() for path in files]
    assert "az login --service-principal -u ann" in done.stderr
    said = (*texts, done.stdout, done.stderr)
    assert not any(secret.split("_", 2)[2] in text for text in said)


@pytest.mark.parametrize("name", ["ben", ""])
def test_who_logs_in_by_hand_shows_his_secret_to_no_other_user(home, tmp_path, name):
    """What stands in a command line all may read: az reads it from standard input."""
    secret = made_token(home, name) if name else ""
    by_hand = az_login(home, FAIRNOTICE_TOKEN=secret).stderr.partition("log in: ")[2]
    az = program(tmp_path, "az", f'echo "$@" > {tmp_path}/words; cat > {tmp_path}/input')
    subprocess.run(  # noqa: S603 - the line that was printed
        [shutil.which("sh"), "-ec", by_hand],
        env={"PATH": f"{az}:{os.environ['PATH']}", "FAIRNOTICE_TOKEN": secret},
        check=True,
    )
    words = (tmp_path / "words").read_text()
    assert words.startswith(f"login --service-principal -u {name or 'operator'} -p @- --tenant ")
    assert (tmp_path / "input").read_text() == (secret or "none")


@pytest.mark.parametrize(
    ("token", "code", "said"),
    [
        ("garbage", exits.WRONG_USAGE, "FAIRNOTICE_TOKEN is no token"),
        (f"fairnotice_{'0' * 16}_{'a' * 43}", exits.REFUSED, "AADSTS7000215"),
    ],
)
def test_a_token_that_nobody_knows_signs_nobody_in(home, token, code, said):
    """Also where nobody is asked who he is: whoever shows one means it."""
    assert az_login(home).returncode == 0
    before = found(home)
    done = az_login(home, FAIRNOTICE_TOKEN=token)
    assert stops(done)
    assert done.returncode == code
    assert said in done.stderr
    assert token not in done.stderr
    assert found(home) == before


def test_where_it_is_off_it_says_so(home):
    """As up was told."""
    done = az_login(home, FAIRNOTICE_ARM="off")
    assert "arm is off here" in done.stderr
    assert stops(done)


def test_nobody_is_signed_in_at_another_than_he_has_named(home, tmp_path):
    """One that does not answer, or that has none: neither means the one at the usual place."""
    done = az_login(home, FAIRNOTICE_URL=f"http://127.0.0.1:{own_port()}")
    assert done.returncode == exits.UNREACHABLE
    assert "No control plane answers at" in done.stderr
    assert stops(done)
    with started(tmp_path, "--store", "memory:", "--arm", "off") as (_, said):
        done = az_login(home, FAIRNOTICE_URL=control(said))
    assert done.returncode == exits.REFUSED
    assert "does not serve Azure's tools. Give --arm https://HOST:PORT" in done.stderr
    assert stops(done)


WITHOUT_EXTRAS = "import sys; sys.modules['cryptography'] = None; import fairnotice.__main__"


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (("--directry", "x"), {}, "Did you mean --directory?"),
        ((), {"FAIRNOTICE_TIMNG": "azure"}, "is no setting"),
        ((), {"by": (sys.executable, "-c", WITHOUT_EXTRAS)}, "pip install 'fairnotice[server]'"),
        ((), {"az": "exit 1"}, "az could not log in"),
        ((), {"az": "kill -INT $PPID"}, "With unset AZURE_CONFIG_DIR"),
    ],
)
def test_whatever_it_fails_by_the_shell_stops_and_az_asks_nobody(
    home, tmp_path, words, environment, said
):
    """Before anything is known, when az itself says no, and by Ctrl-C."""
    more = dict(environment)
    if "az" in more:
        more["PATH"] = f"{program(tmp_path, 'az', more.pop('az'))}:{os.environ['PATH']}"
    done = az_login(home, *words, **more)
    assert said in done.stderr
    assert stops(done)


def test_what_does_not_fail_stops_nobody(home):
    """Neither a login nor a look at the help."""
    for words in ((), ("--help",)):
        done = az_login(home, *words)
        assert done.returncode == 0
        assert "false" not in done.stdout.splitlines()
        assert "/dev/null" not in done.stdout


@pytest.mark.parametrize("there", ["config", "clouds.config", "azureProfile.json"])
def test_a_configuration_of_somebodys_own_is_left_alone(home, tmp_path, there):
    """Whatever of it there is; one that it has made itself, it makes anew."""
    (tmp_path / there).write_text("mine")
    done = az_login(home, "--directory", str(tmp_path))
    assert f"az-login has not set up: it has {there}" in done.stderr
    assert stops(done)
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {there: "mine"}
    for _ in range(2):
        assert az_login(home, "--directory", str(tmp_path / "new")).returncode == 0


def test_az_signs_in_anew_whatever_it_has_kept(home, tmp_path):
    """A token of a key that is gone would be shown for an hour; the rest is az's to keep."""
    assert az_login(home).returncode == 0
    for name in ("msal_token_cache.json", "msal_http_cache.bin", "azureProfile.json"):
        (home[0] / DIRECTORY / name).write_text("kept")
    az = program(tmp_path, "az", f'ls "$AZURE_CONFIG_DIR" > {tmp_path}/seen')
    done = az_login(home, PATH=f"{az}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    seen = (tmp_path / "seen").read_text().split()
    assert "azureProfile.json" in seen
    assert not [name for name in seen if name.startswith("msal_")]


def test_a_directory_in_which_nobody_is_logged_in(home, tmp_path):
    """Nor whoever was: a VM that has no identity would go on as him."""
    assert az_login(home).returncode == 0
    logins = ("azureProfile.json", "service_principal_entries.json", "msal_token_cache.json")
    for name in logins:
        (home[0] / DIRECTORY / name).write_text("kept")
    az = program(tmp_path, "az", f"echo az >> {tmp_path}/asked")
    done = az_login(home, "--no-login", PATH=f"{az}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert "Inside a VM: az login --identity" in done.stderr
    assert f"export AZURE_CONFIG_DIR={home[0] / DIRECTORY}\n" in done.stdout
    assert not (tmp_path / "asked").exists()
    assert not [one for one in logins if (home[0] / DIRECTORY / one).exists()]
    done = az_login(home, "--no-login", "--arm", f"localhost:{own_port()}")
    assert "Resource Manager is not at" in done.stderr
    assert stops(done)


@pytest.mark.parametrize("words", [(), ("--no-login",)])
def test_somebody_else_who_answers_in_json_is_no_resource_manager(home, tmp_path, words):
    """Nobody is logged out for it."""
    assert az_login(home).returncode == 0
    kept = home[0] / DIRECTORY / "azureProfile.json"
    kept.write_text("kept")
    with answering_in_json(certificate(tmp_path)) as (url, ca):
        done = az_login(home, "--arm", url, "--authority", ca, *words)
    assert "is no Resource Manager of fairnotice" in done.stderr
    assert stops(done)
    assert kept.exists()


@contextmanager
def answering_in_json(tls):
    """A server that has none of what it is asked for; its URL, and who vouches for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            body = b'{"status": 404}'
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}", str(tls[0])
        finally:
            thread.join()


def test_whoever_types_it_without_eval_is_told_that_nothing_has_changed(home):
    """His az is still his own; a shell that runs what is printed is told nothing of it."""
    reader, terminal = os.openpty()
    try:
        done = az_login(home, stdout=terminal)
    finally:
        os.close(terminal)
        os.close(reader)
    assert done.returncode == 0
    directory = home[0] / DIRECTORY
    wanted = f'To have its az ask there: eval "$(fairnotice az-login --directory {directory})"'
    assert wanted in done.stderr
    assert "as it was" not in az_login(home).stderr
