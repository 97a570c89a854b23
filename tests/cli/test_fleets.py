"""Fleet files: the difference first, then a question, then all or nothing."""

import json

from tests.cli.typed import Terminal, write

SPARE = '\n[[vm]]\nname = "{name}"\nnode = "node-5"\n'


def test_what_was_exported_changes_nothing(fairnotice, tmp_path):
    """Export and apply go round."""
    file = write(tmp_path, "fleet.toml", fairnotice("fleet", "export").out)
    ended = fairnotice("fleet", "apply", file)

    assert (ended.code, ended.err) == (0, "")
    assert "nothing changes" in ended.out


def test_the_difference_is_shown_and_a_dry_run_changes_nothing(fairnotice, tmp_path):
    """Added, changed and removed; and loudly, that a file moves no VM."""
    text = fairnotice("fleet", "export").out
    text = text.replace('name = "spot_1"\nnode = "node-5"', 'name = "spot_1"\nnode = "node-4"')
    text = text.replace("terminate_notice_minutes = 5", "terminate_notice_minutes = 9")
    text = text.partition('[[vm]]\nname = "db"')[0] + SPARE.format(name="cache")
    file = write(tmp_path, "fleet.toml", text)
    shown = fairnotice("fleet", "apply", file, "--dry-run")
    found = fairnotice("fleet", "apply", file, "--dry-run", "--json").json

    assert shown.code == 0
    assert "+ VM cache" in shown.out
    assert "- VM db" in shown.out
    assert "terminate notice minutes: 5 → 9" in shown.out
    assert "! spot_1 is on node-5 and the file names node-4" in shown.out
    assert "1 added, 2 changed, 1 removed" in shown.out
    assert [one["name"] for one in found["removed"]] == ["db"]
    assert fairnotice("vm", "show", "cache").code == 3


def test_a_deallocated_vm_is_no_difference(fairnotice, tmp_path):
    """It has no node, and the file names none for it."""
    text = fairnotice("fleet", "export").out.replace('name = "db"\nnode = "node-1"', 'name = "db"')
    fairnotice("vm", "deallocate", "db")
    file = write(tmp_path, "fleet.toml", text)

    assert "+" not in fairnotice("fleet", "apply", file, "--dry-run").out


def test_a_script_says_yes_beforehand(fairnotice, tmp_path):
    """Where nobody can be asked, --yes is needed; then it is done."""
    text = fairnotice("fleet", "export").out + SPARE.format(name="spare-0")
    file = write(tmp_path, "fleet.toml", text)
    asked = fairnotice("fleet", "apply", file)
    done = fairnotice("fleet", "apply", "-", "--yes", stdin=text)

    assert asked.code == 2
    assert "--yes" in asked.err
    assert done.code == 0
    assert done.out.endswith("Applied.\n")
    assert fairnotice("vm", "show", "spare-0").code == 0


def test_a_person_is_asked(service, fairnotice, tmp_path):
    """No is the default; yes is y."""
    text = fairnotice("fleet", "export").out + SPARE.format(name="spare-1")
    file = write(tmp_path, "fleet.toml", text)
    refusing = Terminal("fleet", "apply", file, url=service.url)
    refusing.wait_for("Apply this? [y/N]")
    refusing.type("\n")
    assert refusing.end() == 1
    assert "Nothing has changed." in refusing.text
    assert fairnotice("vm", "show", "spare-1").code == 3

    agreeing = Terminal("fleet", "apply", file, url=service.url)
    agreeing.wait_for("Apply this? [y/N]")
    agreeing.type("y\n")
    assert agreeing.end() == 0
    assert "Applied." in agreeing.text
    assert fairnotice("vm", "show", "spare-1").code == 0


def test_what_would_break_an_event_is_refused_and_the_event_named(fairnotice, tmp_path):
    """All or nothing: the new VM of the same file is not there either."""
    answer = fairnotice("vm", "restart", "web-0", "--not-before", "+1h", "--json")
    event = json.loads(answer.out)["events"][0]["id"]
    text = fairnotice("fleet", "export").out.replace(
        'name = "web-0"\nnode = "node-0"', 'name = "web-0"\nnode = "node-5"'
    )
    file = write(tmp_path, "fleet.toml", text + SPARE.format(name="spare-2"))
    ended = fairnotice("fleet", "apply", file, "--yes")
    beforehand = fairnotice("fleet", "apply", file, "--dry-run")
    for_programs = fairnotice("fleet", "apply", file, "--dry-run", "--json")
    asked = fairnotice("fleet", "apply", file)

    assert ended.code == 1
    assert "nothing has changed" in ended.err
    assert event in ended.err
    assert fairnotice("vm", "show", "spare-2").code == 3
    # A dry run is not green for what is refused, and nobody is asked whether he wants it.
    assert (beforehand.code, for_programs.code, asked.code) == (1, 1, 1)
    assert "+ VM spare-2" in beforehand.out
    assert beforehand.err.startswith(f"It would be refused. While {event} of web-0 is live")
    assert for_programs.json["refused"]["event"] == event
    assert asked.err == ended.err


def test_an_empty_file_is_a_mistake_unless_it_says_that_there_is_nothing(fairnotice, tmp_path):
    """A command that was to fill it has failed, and the shell has emptied it all the same."""
    empty = write(tmp_path, "fleet.toml", "# of the hosts\n")
    meant = write(tmp_path, "none.toml", "vm = []\n")
    before = fairnotice("fleet", "export").out
    for file in (empty, "-"):
        ended = fairnotice("fleet", "apply", file, "--yes")
        assert ended.code == 2
        assert "declares nothing, which would remove the whole fleet" in ended.err
    removes = fairnotice("fleet", "apply", meant, "--dry-run")
    assert "- VM web-0" in removes.out
    assert fairnotice("fleet", "export").out == before


def test_a_file_with_a_mistake_is_wrong_usage(fairnotice, tmp_path):
    """What is wrong is named, and what may have been meant."""
    file = write(tmp_path, "fleet.toml", '[[vm]]\nname = "x"\nnoed = "node-0"\n')
    ended = fairnotice("fleet", "apply", file, "--yes")

    assert ended.code == 2
    assert "did you mean `node`?" in ended.err
    assert fairnotice("fleet", "apply", str(tmp_path / "none.toml")).code == 2
