"""Backups by the command line: of what runs, of a file, and into another database."""

import stat
import subprocess
from contextlib import closing
from pathlib import Path

from fairnotice.stores.opening import open_store
from tests.cli.typed import PROGRAM, environment, typed
from tests.deliveries.test_retries import webhook
from tests.stores.stories import nodes


def test_a_running_service_is_backed_up_and_goes_on_elsewhere(fairnotice, tmp_path):
    """One file, for its owner only; restored once, and not into what is used already."""
    file, url = tmp_path / "fleet.backup", f"sqlite:{tmp_path / 'new.db'}"
    made = fairnotice("backup", str(file))

    assert (made.code, made.err) == (0, "")
    assert "lines of history" in made.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["fleet.backup"]
    restored = typed("restore", str(file), "--store", url)
    assert restored.code == 0
    assert "Restored: revision" in restored.out
    assert "Before you start the service: revoke those tokens" in restored.err
    assert "Webhooks" not in restored.err
    again = typed("restore", str(file), "--store", url)
    assert (again.code, again.out) == (2, "")
    assert "not empty" in again.err
    store = open_store(url)
    assert len(nodes(store)) == len(fairnotice("node", "list", "--json").json["items"])
    store.close()


def test_a_store_is_backed_up_by_itself_and_through_a_pipe(fairnotice, tmp_path):
    """What a program reads is what the file holds."""
    file, url = str(tmp_path / "fleet.backup"), f"sqlite:{tmp_path / 'one.db'}"
    fairnotice("backup", file)
    typed("restore", file, "--store", url)
    piped = subprocess.run(  # noqa: S603
        [*PROGRAM, "backup", "-", "--store", url],
        capture_output=True,
        check=True,
        env=environment(None),
    )
    moved = subprocess.run(  # noqa: S603
        [*PROGRAM, "restore", "-", "--store", f"sqlite:{tmp_path / 'two.db'}", "--json"],
        input=piped.stdout,
        capture_output=True,
        check=True,
        env=environment(None),
    )
    assert b'"fleet":' in moved.stdout
    found = typed("backup", f"{file}-2", "--store", f"sqlite:{tmp_path / 'two.db'}", "--json").json
    assert found["counts"]["fleet"] > 0
    assert found["counts"].keys() == {"fleet", "journal", "token", "audit"}


def test_what_cannot_be_is_said_and_leaves_nothing_behind(fairnotice, tmp_path):
    """No file half written, no database half made, and the earlier backup stays."""
    file = tmp_path / "fleet.backup"
    fairnotice("backup", str(file))
    whole = file.read_bytes()
    (tmp_path / "cut.backup").write_bytes(whole[:-100])
    url = f"sqlite:{tmp_path / 'new.db'}"

    nobody = typed("backup", str(file), "--force", url="http://127.0.0.1:1")
    assert nobody.code == 4
    assert file.read_bytes() == whole
    for given, code, why in (
        (("restore", str(tmp_path / "cut.backup"), "--store", url), 2, "cut off or damaged"),
        (("restore", str(tmp_path / "no.backup"), "--store", url), 2, "cannot be read"),
        (("restore", str(file), "--store", "memory:"), 2, "name a database"),
        (("backup", str(tmp_path / "no" / "where")), 2, "cannot be written"),
    ):
        ended = fairnotice(*given)
        assert (ended.code, ended.out) == (code, "")
        assert why in ended.err
    assert not list(Path(tmp_path).glob("*.partial"))
    assert typed("restore", str(file), "--store", url).code == 0


def test_an_earlier_backup_is_not_replaced_unasked(fairnotice, tmp_path):
    """Nor is the control plane asked for another; with --force it is."""
    file = tmp_path / "fleet.backup"
    file.write_text("last night's")
    refused = typed("backup", str(file), url="http://127.0.0.1:1")
    assert (refused.code, file.read_text()) == (2, "last night's")
    assert "--force" in refused.err
    assert fairnotice("backup", str(file), "--force").code == 0
    assert file.read_bytes()[:2] == b"\x1f\x8b"


def test_a_url_with_a_password_is_read_from_a_file(fairnotice, tmp_path):
    """Its first line, as `url_file` of serve.toml; so it is in no list of processes."""
    file, url = tmp_path / "fleet.backup", tmp_path / "store-url"
    url.write_text(f"sqlite:{tmp_path}/new.db\nnotes\n")
    fairnotice("backup", str(file))
    assert typed("restore", str(file), "--store-file", str(url)).code == 0
    assert typed("token", "list", "--store-file", str(url)).code == 0
    for words, why in (
        (("--store-file", str(tmp_path / "no")), "cannot be read"),
        (("--store-file", str(url), "--store", "memory:"), "not allowed with"),
        ((), "--store-file"),
    ):
        refused = typed("restore", str(file), *words)
        assert refused.code == 2
        assert why in refused.err


def test_who_would_be_told_by_a_copy_is_named(tmp_path):
    """Before it is started, with what to do; to a program too."""
    url, file = f"sqlite:{tmp_path}/it.db", str(tmp_path / "fleet.backup")
    with closing(open_store(url)) as store:
        store.add_webhook(webhook(id="1", name="ops", secret="whsec_a"), 0)  # noqa: S106
        store.add_webhook(webhook(id="2", name="chat", url="https://a.example/?code=b"), 0)
    assert typed("backup", file, "--store", url, "--json").json["webhooks"] == ["ops", "chat"]
    restored = typed("restore", file, "--store", f"sqlite:{tmp_path}/new.db")
    assert "Webhooks: ops, chat. Their receivers are told from the start" in restored.err
    assert "fairnotice webhook delete NAME" in restored.err
    assert not any(secret in restored.err for secret in ("whsec_", "code="))
    copy = f"sqlite:{tmp_path}/copy.db"
    restored = typed("restore", file, "--store", copy, "--without-webhooks")
    assert "Webhooks: ops, chat. Left out: nobody is told" in restored.err
    with closing(open_store(copy)) as store:
        assert store.webhooks() == []
    for words in ((), ("--without-webhooks",)):
        other = f"sqlite:{tmp_path}/other-{len(words)}.db"
        shown = typed("restore", file, "--store", other, *words, "--json").json
        assert (shown["webhooks"], shown["without_webhooks"]) == (["ops", "chat"], bool(words))
