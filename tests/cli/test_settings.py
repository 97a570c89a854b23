"""Settings: by flag, then FAIRNOTICE_*, then file; `config show` says which it was."""

import argparse

import pytest

from fairnotice.cli import settings
from fairnotice.errors import UsageError
from tests.cli.typed import typed, write


def shown(*words, env=None):
    """What `config show` says, as value and origin by name."""
    ended = typed("config", "show", "--json", *words, env=env)
    assert ended.code == 0, ended.err
    return {row["name"]: (row["value"], row["origin"]) for row in ended.json["settings"]}


def test_every_setting_has_a_default(tmp_path):
    """A person without settings has all of them."""
    found = shown(env={"XDG_STATE_HOME": str(tmp_path)})

    assert set(found) == set(settings.BY_NAME)
    assert {origin for _, origin in found.values()} == {"default"}
    assert found["url"][0] == "http://127.0.0.1:8600"
    assert found["store"][0] == f"sqlite:{tmp_path}/fairnotice/up.db"


def test_flag_then_variable_then_file(tmp_path):
    """Each wins over those behind it."""
    (tmp_path / "fairnotice").mkdir()
    text = 'url = "http://file:1"\ntiming = "azure"\nrate_limit = 9\n'
    file = write(tmp_path / "fairnotice", "config.toml", text)
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    variable = home | {"FAIRNOTICE_URL": "http://variable:2"}

    assert shown(env=home)["url"] == ("http://file:1", file)
    assert shown(env=home)["rate_limit"] == ("9", file)
    assert shown(env=variable)["url"] == ("http://variable:2", "FAIRNOTICE_URL")
    assert shown("--url", "http://flag:3", env=variable)["url"] == ("http://flag:3", "--url")


def test_the_file_may_be_named(tmp_path):
    """By --config or FAIRNOTICE_CONFIG; then it must be there."""
    file = write(tmp_path, "mine.toml", 'timing = "azure"\n')

    assert shown("--config", file)["timing"] == ("azure", file)
    assert shown(env={"FAIRNOTICE_CONFIG": file})["timing"] == ("azure", file)
    assert typed("config", "show", "--config", str(tmp_path / "none")).code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('timming = "azure"', "Did you mean timing?"),
        ("rate-limit = 5", "Did you mean rate_limit?"),
        ("colour = 1", "Settings are url"),
        ('timing = "fast"', "Give azure or dev"),
        ('control = "8600"', "Give HOST:PORT"),
        ("timing = false", "must be text"),
        ("timing = ", "no TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, told):
    """What is wrong, where, and what may have been meant."""
    file = write(tmp_path, "config.toml", text)
    with pytest.raises(UsageError) as error:
        settings.effective({}, {}, (tmp_path / "config.toml", True))

    assert told in str(error.value)
    assert file in str(error.value)


def test_a_mistake_in_a_variable_is_named(tmp_path):
    """The variable, its value, and what it takes."""
    with pytest.raises(UsageError, match=r"RATE_LIMIT is 'many'\. Give a number or off"):
        settings.effective({}, {"FAIRNOTICE_RATE_LIMIT": "many"}, (tmp_path / "none", False))


def test_a_command_is_given_the_settings_that_were_not_typed(monkeypatch):
    """What was typed stays; what is left to its default is the command's own business."""
    monkeypatch.setenv("FAIRNOTICE_TIMING", "azure")
    monkeypatch.setenv("FAIRNOTICE_STORE", "memory:")
    options = argparse.Namespace(timing=None, store="sqlite:x", control=None, config="/dev/null")
    settings.fill(options)

    assert (options.timing, options.store, options.control) == ("azure", "sqlite:x", None)


def test_a_password_is_not_shown():
    """Neither where it fits nor where it does not."""
    ended = typed("config", "show", env={"FAIRNOTICE_STORE": "postgresql://ada:secret@there/db"})
    wrong = typed("config", "show", env={"FAIRNOTICE_STORE": "postgrsql://ada:secret@there/db"})

    assert "postgresql://ada:…@there/db" in ended.out
    assert wrong.code == 2
    assert "secret" not in ended.out + wrong.err


def test_every_place_is_read_the_same_way():
    """Host and port; IPv6 in brackets."""
    assert settings.place("127.0.0.1:8600") == ("127.0.0.1", 8600)
    assert settings.place("[::1]:8600") == ("::1", 8600)
    assert [settings.place(text) for text in ("8600", "a:b", ":1", "a:70000")] == [None] * 4


def test_config_show_is_a_table_for_people():
    """Every setting in a line, and where the file would be."""
    ended = typed("config", "show", env={"FAIRNOTICE_TIMING": "azure"})

    assert ["timing", "azure", "FAIRNOTICE_TIMING"] in [
        row.split() for row in ended.out.splitlines()
    ]
    assert "config.toml (not there)" in ended.out
