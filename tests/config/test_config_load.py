"""Loading: precedence, origins, and what is refused in which words."""

from datetime import timedelta
from pathlib import Path
from typing import Literal, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from dray.config import BadConfig, Config, Level, Override, Secret, Section, Size, leaves, load, parse_set
from dray.log.settings import LogSettings
from dray.objects.settings import ObjectsSettings
from dray.replica.settings import SessionSettings

PASSWORD = "correct-horse"


class Retry(Section):
    """A section inside a section."""

    times: int = Field(default=3, ge=0)
    """How often."""


class Store(Section):
    """One of each kind of setting."""

    url: str = "file:here"
    """Where."""
    wait: timedelta = timedelta(seconds=15)
    """How long."""
    pause: timedelta | None = None
    """How long between."""
    limit: Size = Size("64MiB")
    """How much."""
    floor: Size = Field(default=Size(0), le=1000)
    """How little."""
    mode: Literal["fast", "safe"] = "safe"
    """How."""
    enabled: bool = False
    """Whether."""
    zones: tuple[str, ...] = ()
    """Among which."""
    note: str | None = None
    """Why."""
    password: Secret | None = None
    """With what."""
    pin: Secret | None = None
    """A secret with a validator that talks."""
    retry: Retry = Retry()
    """Again."""

    @field_validator("pin")
    @classmethod
    def _digits(cls, value: Secret | None) -> Secret | None:
        if value is not None and not value.get_secret_value().isdigit():
            raise ValueError(f"expected digits, not {value.get_secret_value()}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pause is not None and self.pause > self.wait:
            raise ValueError("store.pause must be at most store.wait")
        return self


SECTIONS = {"store": Store, "session": SessionSettings}


def load_from(text: str | None = None, env: dict[str, str] | None = None, sets: tuple[str, ...] = ()) -> Config:
    """Load with a file of this text; the file lies in the working directory, which a fixture makes."""
    file = None
    if text is not None:
        file = Path("dray.yaml")
        file.write_text(text, encoding="utf-8")
    return load(SECTIONS, file=file, environ=env or {}, overrides=[parse_set(argument) for argument in sets])


def problems_of(*args: object, **kwargs: object) -> str:
    with pytest.raises(BadConfig) as caught:
        load_from(*args, **kwargs)
    return "\n".join(str(problem) for problem in caught.value.problems)


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_each_source_goes_over_those_before_it_and_the_origin_is_kept():
    """CF3, R-215: default < file < environment < flag."""
    text = "store:\n  url: file:from-file\n  wait: 20s\n  limit: 1MiB\n"
    env = {"DRAY__STORE__WAIT": "30s", "DRAY__STORE__LIMIT": "2MiB"}
    config = load_from(text, env, ("store.limit=3MiB",))
    shown = {entry.key: (entry.value, str(entry.origin)) for entry in config.entries()}
    assert shown["store.mode"] == ("safe", "default")
    assert shown["store.url"] == ("file:from-file", "dray.yaml:2")
    assert shown["store.wait"] == ("30s", "env DRAY__STORE__WAIT")
    assert shown["store.limit"] == ("3MiB", "--set store.limit")
    assert config.get(Store).limit == 3 << 20
    assert config.get(Store).wait == timedelta(seconds=30)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 99)), max_size=6
    )
)  # fmt: skip
def test_whatever_is_given_the_highest_level_wins_and_the_last_of_equals(given_values):
    """CF3: the same input gives the same settings."""
    names = {"a": Level.FILE, "b": Level.ENV, "c": Level.FLAG}
    file = next((value for source, value in reversed(given_values) if source == "a"), None)
    env = dict([("DRAY__STORE__RETRY__TIMES", str(v)) for s, v in given_values if s == "b"])
    sets = tuple(f"store.retry.times={v}" for s, v in given_values if s == "c")
    text = None if file is None else f"store:\n  retry:\n    times: {file}\n"
    config = load_from(text, env, sets)
    assert config.entries() == load_from(text, env, sets).entries()
    if given_values:
        top = max(names[source] for source, _ in given_values)
        expected = [value for source, value in given_values if names[source] == top][-1]
        assert config.get(Store).retry.times == expected
    else:
        assert config.get(Store).retry.times == 3


def test_a_flag_of_a_command_is_shown_as_the_user_wrote_it():
    config = load(SECTIONS, environ={}, overrides=[Override(key="store.url", value="file:x", flag="--data")])
    assert [str(e.origin) for e in config.entries() if e.key == "store.url"] == ["--data"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "store:\n", "store: {}\n", "null\n"])
def test_a_file_that_sets_nothing_is_fine(text):
    assert load_from(text).entries() == load_from().entries()


def test_every_kind_of_value_can_be_given_as_text():
    env = {
        "DRAY__STORE__ENABLED": "true",
        "DRAY__STORE__MODE": "fast",
        "DRAY__STORE__ZONES": "[a, b]",
        "DRAY__STORE__RETRY__TIMES": "7",
        "DRAY__STORE__NOTE": "",
        "DRAY__STORE__PAUSE": "1s",
    }
    store = load_from("store: {note: something}\n", env).get(Store)
    assert (store.enabled, store.mode, store.zones, store.retry.times) == (True, "fast", ("a", "b"), 7)
    assert store.note is None, "an empty text takes an optional value away"
    assert store.pause == timedelta(seconds=1)


def test_merge_keys_and_anchors_work_and_the_own_key_wins():
    text = "store: &base\n  note: base\n  mode: fast\nsession:\n  ttl: 30s\n"
    assert load_from(text).get(Store).note == "base"
    text = "store:\n  <<: {note: merged, mode: fast}\n  note: own\n"
    store = load_from(text).get(Store)
    assert (store.note, store.mode) == ("own", "fast")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"text": "store:\n  wiat: 3s\n"}, "store.wiat: no such setting; did you mean store.wait? (dray.yaml:2)"),
        ({"text": "stor:\n  wait: 3s\n"}, "stor: no such setting; did you mean store? (dray.yaml:1)"),
        ({"text": "wait: 3s\n"}, "wait: no such setting; did you mean store.wait? (dray.yaml:1)"),
        ({"text": "store:\n  retry:\n    tims: 3\n"}, "did you mean store.retry.times? (dray.yaml:3)"),
        ({"text": "1: 2\n"}, "1: no such setting; the sections are session, store (dray.yaml:1)"),
        ({"env": {"DRAY__STORE__WIAT": "3s"}}, "did you mean DRAY__STORE__WAIT? (env DRAY__STORE__WIAT)"),
        ({"env": {"DRAY__NOPE": "3s"}}, "nope: no such setting"),
        ({"env": {"DRAY__Store__wait": "3s"}}, "did you mean DRAY__STORE__WAIT?"),
        ({"env": {"DRAY__": "3s"}}, "no such setting"),
        ({"sets": ("store.wiat=3s",)}, "did you mean store.wait? (--set store.wiat)"),
        ({"sets": ("store=3s",)}, "store: no such setting; this is a section: name a setting in it"),
        ({"env": {"DRAY__STORE": "3s"}}, "this is a section"),
        ({"env": {"DRAY__STORE.WAIT": "3s"}}, "did you mean DRAY__STORE__WAIT?"),
        ({"env": {"DRAY__STORE__PASWORD_FILE": "x"}}, "did you mean DRAY__STORE__PASSWORD_FILE?"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(source, says):
    """CF2, R-215: from every source."""
    assert says in problems_of(**source)


def test_names_with_one_underscore_are_left_to_others():
    load_from(env={"DRAY_PORT": "tcp://10.0.0.1:9092", "DRAY_SERVICE_HOST": "10.0.0.1", "DRAYAGE": "x"})


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"text": "store:\n  wait: 30\n"}, "store.wait: expected a duration with its unit"),
        ({"text": "store:\n  wait: 30\n"}, "got 30 (dray.yaml:2)"),
        ({"text": "store:\n  url: 5\n"}, "store.url: expected a valid string, got 5 (dray.yaml:2)"),
        (
            {"text": "store:\n  enabled: maybe\n"},
            'store.enabled: expected a valid boolean, unable to interpret input, got "maybe"',
        ),
        ({"text": "store:\n  zones: a\n"}, 'store.zones: expected a valid tuple, got "a"'),
        ({"text": "store:\n  zones: [a, 3]\n"}, "store.zones.1: expected a valid string"),
        ({"env": {"DRAY__STORE__LIMIT": "64M"}}, 'store.limit: expected a size such as "64MiB"'),
        ({"env": {"DRAY__STORE__LIMIT": "64M"}}, 'got "64M" (env DRAY__STORE__LIMIT)'),
        ({"env": {"DRAY__STORE__MODE": "slow"}}, "store.mode: expected 'fast' or 'safe', got \"slow\""),
        ({"env": {"DRAY__STORE__ZONES": "[a"}}, "store.zones: expected YAML"),
        ({"sets": ("store.retry.times=-1",)}, 'store.retry.times: expected greater than or equal to 0, got "-1"'),
        ({"sets": ("store.floor=2000",)}, "store.floor: expected less than or equal to 1000"),
        ({"text": "store: 5\n"}, "store: expected settings under this section (dray.yaml:1)"),
        ({"text": "store: {retry: [1]}\n"}, "store.retry: expected settings under this section"),
    ],
)
def test_a_wrong_value_is_refused_with_key_value_origin_and_what_is_expected(source, says):
    assert says in problems_of(**source)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("store:\n  wait: 1s\n  wait: 2s\n", "'wait' stands twice, in lines 2 and 3: keep one"),
        ("store: {}\nstore: {}\n", "'store' stands twice, in lines 1 and 2"),
        ("store:\n  zones: [{a: 1, a: 2}]\n", "'a' stands twice"),
        ("- a\n", "expected sections with settings in them (dray.yaml)"),
        ("just text\n", "expected sections with settings in them (dray.yaml)"),
        ("store:\n\twait: 1s\n", "not YAML: check the indentation"),
        ("store: {wait: 1s\n", "not YAML"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("store: !!python/object/apply:os.system [echo]\n", "expected settings under this section"),
        ("store: {note: !!python/object/apply:os.system [echo]}\n", "not YAML as drayd takes it"),
        ("store: {note: " + "[" * 5000 + "\n", "not YAML"),
        ("? [a]\n: b\n", "expected the name of a setting (dray.yaml:1)"),
        ("store: {note: 2026-99-99}\n", "not YAML"),
    ],
)
def test_a_file_that_is_not_our_yaml_is_refused_with_its_place(text, says):
    assert says in problems_of(text)


def test_a_missing_or_unreadable_file_says_so(tmp_path):
    def problem(path: Path) -> str:
        with pytest.raises(BadConfig) as caught:
            load(SECTIONS, file=path, environ={})
        return str(caught.value)

    assert "there is no such configuration file" in problem(tmp_path / "nowhere.yaml")
    assert "Is a directory" in problem(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in problem(tmp_path / "binary")
    (tmp_path / "huge").write_bytes(b"#" * (2 << 20))
    assert "larger than 1 MiB" in problem(tmp_path / "huge")


def test_all_problems_are_told_at_once():
    told = problems_of("store:\n  wiat: 1s\n  mode: slow\n", {"DRAY__SESSION__TTL": "x"}, ("store.retry.times=y",))
    for key in ("store.wiat", "store.mode", "session.ttl", "store.retry.times"):
        assert key in told


def test_a_relation_names_both_settings_and_where_they_came_from():
    told = problems_of(env={"DRAY__SESSION__KEEPALIVE": "10s"})
    assert "session.keepalive must be at most a third of session.ttl" in told
    assert 'session.ttl is the default, session.keepalive is "10s" from env DRAY__SESSION__KEEPALIVE' in told
    load_from(env={"DRAY__SESSION__KEEPALIVE": "5s"})
    assert "at most a third" in problems_of(env={"DRAY__SESSION__KEEPALIVE": "5001ms"})
    short = {"DRAY__SESSION__TTL": "2999ms", "DRAY__SESSION__KEEPALIVE": "900ms"}
    assert "session.ttl must be at least 3s" in problems_of(env=short)


@pytest.mark.parametrize("argument", ["store.wait", "", "=5", PASSWORD])
def test_a_set_without_key_or_equals_is_refused_and_not_repeated(argument):
    with pytest.raises(BadConfig, match=r"section\.key=value") as caught:
        parse_set(argument)
    assert PASSWORD not in str(caught.value)


def test_a_value_may_hold_equals_signs():
    assert load_from(sets=("store.note=a=b",)).get(Store).note == "a=b"


def test_a_secret_is_read_from_its_file_without_the_newline_and_shown_hidden(tmp_path):
    (tmp_path / "pw").write_text(PASSWORD + "\n", encoding="utf-8")
    for source in ({"text": "store: {password_file: pw}\n"}, {"env": {"DRAY__STORE__PASSWORD_FILE": "pw"}}):
        config = load_from(**source)
        secret = config.get(Store).password
        assert secret is not None
        assert secret.get_secret_value() == PASSWORD
        assert [entry.value for entry in config.entries() if entry.key == "store.password"] == ["***"]


def test_a_secret_from_a_higher_source_goes_over_a_file_that_is_then_not_read():
    config = load_from("store: {password_file: nowhere}\n", {"DRAY__STORE__PASSWORD": PASSWORD})
    secret = config.get(Store).password
    assert secret is not None
    assert secret.get_secret_value() == PASSWORD


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"env": {"DRAY__STORE__PASSWORD_FILE": "nowhere"}}, 'cannot read the secret from "nowhere"'),
        ({"env": {"DRAY__STORE__PASSWORD_FILE": ""}}, "expected the path of a file"),
        ({"env": {"DRAY__STORE__PASSWORD_FILE": "empty"}}, '"empty" is empty'),
        ({"env": {"DRAY__STORE__PASSWORD_FILE": "/dev/zero"}}, "too large to be a secret"),
        (
            {"text": f"store: {{password: {PASSWORD}, password_file: pw}}\n"},
            "give this or store.password_file, not both",
        ),
        ({"sets": ("store.password=***",)}, "stands for a secret that was hidden"),
    ],
)
def test_a_secret_that_cannot_be_had_is_an_error(tmp_path, source, says):
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    told = problems_of(**source)
    assert says in told
    assert PASSWORD not in told


@pytest.mark.parametrize(
    "source",
    [
        {"text": f"store:\n  pasword: {PASSWORD}\n"},
        {"text": f"store: {PASSWORD}\n"},
        {"text": f"stor: {{password: {PASSWORD}}}\n"},
        {"text": f"store:\n  password: [{PASSWORD}]\n"},
        {"text": f"store:\n  password: *{PASSWORD}\n"},
        {"text": f"store:\n  password: !{PASSWORD} x\n"},
        {"text": f"store:\n  password: !{PASSWORD}!x x\n"},
        {"text": f"store:\n  password: {{{PASSWORD}\n"},
        {"text": f"store:\n  password: '{PASSWORD}\n"},
        {"text": f"store:\n  password: a: {PASSWORD}\n"},
        {"text": f"store:\n  url: [s3://key:{PASSWORD}@bucket]\n"},
        {"env": {"DRAY__STORE__PASSWRD": PASSWORD}},
        {"env": {"DRAY__STORE__PIN": PASSWORD}},
        {"env": {"DRAY__STORE__PASSWORD": PASSWORD, "DRAY__STORE__WAIT": "x"}},
        {"sets": (f"store.pasword={PASSWORD}",)},
    ],
)
def test_no_problem_tells_a_secret(source):
    """CF1: not in the message, not in the chain of causes, not in the repr."""
    with pytest.raises(BadConfig) as caught:
        load_from(**source)
    error: BaseException | None = caught.value
    while error is not None:
        assert PASSWORD not in f"{error} {error!r} {error.args}"
        error = error.__cause__


def test_a_loaded_secret_is_in_no_listing_and_no_repr():
    """CF1"""
    config = load_from(env={"DRAY__STORE__PASSWORD": PASSWORD})
    assert PASSWORD not in f"{config!r} {config.get(Store)!r} {config.get(Store)} {config.entries()}"


def test_a_section_is_frozen_and_found_by_its_class():
    config = load_from()
    with pytest.raises(ValueError, match="frozen"):
        config.get(Store).mode = "fast"
    with pytest.raises(LookupError, match="LogSettings"):
        config.get(LogSettings)


def test_a_section_registered_twice_or_a_name_that_is_taken_is_a_bug_told_early():
    class Clash(Section):
        key: Secret | None = None
        key_file: str = ""

    with pytest.raises(TypeError, match="two names"):
        leaves({"a": Store, "b": Store})
    with pytest.raises(TypeError, match="key_file"):
        leaves({"clash": Clash})


OBJECTS = {"objects": ObjectsSettings, "log": LogSettings}


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (("objects.url=ftp://x",), "objects.url: expected a directory, s3://BUCKET/PREFIX"),
        ((f"objects.url=s3://k:{PASSWORD}@bucket",), 'expected no credentials in the URL'),
        (("objects.endpoint=store:9000",), "objects.endpoint: expected an address such as https://"),
        (("objects.endpoint=http://store:9000",), "objects.endpoint is unencrypted"),
        (("objects.access_key_id=me",), "are given together or not at all"),
        (("objects.attempt_timeout=2m",), "objects.attempt_timeout must be at most objects.deadline"),
        (("log.url=raft:x",), "log.url: expected local:DIR, unix:DIR/meta.sock, postgresql://"),
        (("log.url=local:",), "log.url: expected local:DIR, unix:DIR/meta.sock, postgresql://"),
        (("log.segment_bytes=1KiB",), "log.segment_bytes must be at least log.max_entry_bytes"),
        (("log.max_entry_bytes=0",), "log.max_entry_bytes must be from 1B to 16MiB"),
        (("log.max_entry_bytes=16777217B",), "log.max_entry_bytes must be from 1B to 16MiB"),
    ],
)  # fmt: skip
def test_settings_of_store_and_log_that_cannot_work_are_refused(sets, says):
    with pytest.raises(BadConfig) as caught:
        load(OBJECTS, environ={}, overrides=[parse_set(argument) for argument in sets])
    assert says in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_store_on_this_machine_can_be_configured():
    sets = ("objects.url=s3://bucket/a", "objects.endpoint=http://[::1]:9000", "objects.allow_http=true",
            "objects.access_key_id=me", f"objects.secret_access_key={PASSWORD}")  # fmt: skip
    objects = load(OBJECTS, environ={}, overrides=[parse_set(argument) for argument in sets]).get(ObjectsSettings)
    assert objects.secret_access_key is not None
    assert objects.secret_access_key.get_secret_value() == PASSWORD
