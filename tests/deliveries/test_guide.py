"""The receiver of docs/guides/webhooks.md does what the page says."""

import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from fairnotice.cli import exits
from tests.cli.typed import typed
from tests.control.calling import restarted
from tests.house import ROOT

PAGE = (ROOT / "docs" / "guides" / "webhooks.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LINES = re.findall(
    r"^(?:python3|fairnotice) .*8900.*$|^fairnotice webhook test .*$", PAGE, re.MULTILINE
)


@contextmanager
def listening(folder):
    """The receiver of the page: what it prints, and where it is."""
    (folder / "receiver.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "receiver.py", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process.stdout, process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def posted(url, headers, body):
    """The status that is answered."""
    asked = urllib.request.Request(url, body, headers)  # noqa: S310 - our own receiver
    try:
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 - our own receiver
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_the_receiver_of_the_page_is_told(served, tmp_path, monkeypatch):
    """It agrees, takes the test and a restart, and nothing from anybody else."""
    start, create, test = LINES
    assert start == "python3 receiver.py 8900 &"
    control = f"http://{served.run.control}"
    with listening(tmp_path) as (printed, url):
        monkeypatch.chdir(tmp_path)
        line = shlex.split(create.replace("http://127.0.0.1:8900/", url))[1:]
        made = typed(*line, url=control)
        assert made.code == exits.DONE, made.err
        # Who types it once more keeps the secret.
        assert typed(*line, url=control).code == exits.WRONG_USAGE
        tested = typed(*shlex.split(test)[1:], url=control)
        assert tested.out == "Taken: it answered 204.\n"
        assert printed.readline().startswith("Scheduled 00000000-")
        assert posted(url, {}, b"{}") == 401
        old = {"webhook-id": "1", "webhook-timestamp": "1", "webhook-signature": "v1,"}
        assert posted(url, old, b"{}") == 401
        event = restarted(served)
        assert printed.readline() == f"Scheduled {event.lower()} web-0\n"
        assert served.post(f"/v1/events/{event}/approve").status == 202
        said = [printed.readline().split()[0] for _ in range(2)]
        assert said == ["Started", "Completed"]


def test_what_was_overheard_is_not_taken_again_later(tmp_path, monkeypatch):
    """Nor is a body that somebody has changed: the signature is over the time and all of it."""
    page = {"__name__": "page"}
    monkeypatch.chdir(tmp_path)
    # Its functions alone, not the server.
    exec(compile(PROGRAM.partition("class Receiver")[0], "webhooks.md", "exec"), page)  # noqa: S102
    genuine, now = page["is_genuine"], page["time"].time()
    (tmp_path / "secret.txt").write_text("whsec_c2VjcmV0\n")

    def signed(at, body=b"{}"):
        known = page["hmac"].digest(b"secret", f"1.{at}.".encode() + body, "sha256")
        digest = page["base64"].b64encode(known).decode()
        return {"webhook-id": "1", "webhook-timestamp": at, "webhook-signature": f"v1,{digest}"}

    assert genuine(signed(str(int(now))), b"{}")
    assert not genuine(signed(str(int(now))), b"[]")
    (tmp_path / "secret.txt").write_text("")
    with pytest.raises(ValueError, match=r"secret\.txt holds no secret"):
        genuine(signed(str(int(now))), b"{}")
    (tmp_path / "secret.txt").write_text("whsec_c2VjcmV0\n")
    for at in (now - 301, now + 301):
        assert not genuine(signed(str(int(at))), b"{}")
