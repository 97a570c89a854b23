"""What is done to a node, and taken back: files of others, to the byte."""

import json
import subprocess

import pytest

from fairnotice.endpoint.node_deeds import File
from fairnotice.errors import UsageError

OURS = "# Written by fairnotice.\n"


@pytest.mark.parametrize(
    "theirs",
    [
        b"",
        b"# mine\n",
        b"no end of line",
        b"\xff\xfe in no known letters\n",
        b"of\r\nanother system\r\n",
        "é\n".encode(),
    ],
)
def test_somebodys_file_comes_back_to_the_byte(tmp_path, theirs):
    """Whatever is in it: what was kept has been through the record, and what is printed does it."""
    path = tmp_path / "dnsmasq.d" / "fairnotice.conf"
    path.parent.mkdir()
    path.write_bytes(theirs)
    path.chmod(0o600)
    deed = File(path, OURS, "")
    kept = json.loads(json.dumps(deed.before()))
    for line in deed.lines():
        line.do()
    (back,) = deed.undoing(kept, deed.mark())
    printed = str(back).encode()
    back.do()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (theirs, 0o600)

    path.write_text(OURS)
    subprocess.run(["sh"], input=printed, check=True)  # noqa: S607 - the system's shell
    assert path.read_bytes() == theirs


def test_a_file_that_cannot_be_read_is_not_replaced(tmp_path):
    """Nothing of it is known, so nothing of it could come back."""
    folder = tmp_path / "fairnotice.conf"
    folder.mkdir()
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        File(folder, OURS, "").before()
    kept = {"text": None, "mode": 0o644, "folders": []}
    assert File(folder, OURS, "").undoing(kept, OURS) == []
