"""Which cluster is asked: flags over the environment over the user's file, and a wrong file is told."""

from pathlib import Path

import pytest

from dray.cli.profiles import LOCAL, BadProfiles, NoSuchProfile, Profiles, profiles_file, read_profiles, select
from dray.servers.kafka.settings import KafkaSettings
from tests.cli.asking import dray

BOTH = Profiles(file=Path("f"), chosen="home", bootstraps={"home": "h:1", "work": "w:2"})


@pytest.mark.parametrize(
    ("bootstrap", "profile", "environ", "expected", "origin"),
    [
        ("b:1", "work", {"DRAY_BOOTSTRAP": "e:1"}, "b:1", "--bootstrap"),
        (None, "work", {"DRAY_BOOTSTRAP": "e:1"}, "w:2", "--profile"),
        (None, None, {"DRAY_BOOTSTRAP": "e:1", "DRAY_PROFILE": "work"}, "e:1", "DRAY_BOOTSTRAP"),
        (None, None, {"DRAY_PROFILE": "work"}, "w:2", "DRAY_PROFILE"),
        (None, None, {"DRAY_BOOTSTRAP": "", "DRAY_PROFILE": ""}, "h:1", "f"),
    ],
)
def test_the_first_that_says_something_wins(bootstrap, profile, environ, expected, origin):
    chosen = select(bootstrap, profile, environ, BOTH)
    assert (chosen.bootstrap, chosen.origin) == (expected, origin)


def test_without_a_word_it_is_the_broker_of_this_machine(tmp_path):
    nothing = read_profiles(tmp_path / "none.toml")
    assert select(None, None, {}, nothing).bootstrap == LOCAL == KafkaSettings().listen


def test_a_profile_that_is_not_there_is_told():
    with pytest.raises(NoSuchProfile):
        select(None, "moon", {}, BOTH)


def test_the_file_lies_where_xdg_says():
    assert profiles_file({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/dray/config.toml")
    assert profiles_file({"HOME": "/h"}) == Path("/h/.config/dray/config.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"profile = ", "no TOML"),
        (b"\xff", "no TOML"),
        (b"profil = 'a'", "did you mean profile"),
        (b"profile = 'a'", "names no profile"),
        (b"profile = 1", "names no profile"),
        (b"profiles = 1", "one table"),
        (b"[profiles]\na = 1", "is a table"),
        (b"[profiles.a]\nbootstrp = 'x'", "did you mean bootstrap"),
        (b"[profiles.a]", "has its `bootstrap`"),
        (b"[profiles.a]\nbootstrap = 9092", "has its `bootstrap`"),
        (b"#" * ((1 << 20) + 1), "too large"),
    ],
)
def test_a_wrong_file_is_told(tmp_path, text, told):
    file = tmp_path / "config.toml"
    file.write_bytes(text)
    with pytest.raises(BadProfiles, match=told):
        read_profiles(file)


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("DRAY_BOOTSTRAP", "DRAY_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "dray").mkdir()
    return tmp_path / "dray" / "config.toml"


def test_the_profiles_are_listed_with_the_one_that_is_asked(home):
    home.write_text("profile = 'b'\n[profiles.a]\nbootstrap = '127.0.0.1:1'\n[profiles.b]\nbootstrap = '127.0.0.1:2'\n")
    assert dray("profiles", "--format", "tsv").rows == [["a", "127.0.0.1:1", "-"], ["b", "127.0.0.1:2", "yes"]]
    told = dray("profiles", "--profile", "a", "--format", "json").json
    assert (told["bootstrap"], told["origin"], told["profile"]) == ("127.0.0.1:1", "--profile", "a")
    assert "address=127.0.0.1:2" in dray("topics", "list").err
    assert dray("topics", "list", "--profile", "c").code == 2


def test_a_file_that_cannot_be_used_is_wrong_usage(home):
    home.write_text("[profiles.a]\nbootstrap = '127.0.0.1:1:2'\n")
    refused = dray("topics", "list", "--profile", "a")
    assert refused.code == 2
    assert "expected HOST:PORT" in refused.err
    home.write_text("nonsense")
    assert dray("topics", "list").code == 2
    home.unlink()
    home.mkdir()
    assert dray("topics", "list").code == 2
