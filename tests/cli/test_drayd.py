"""`drayd` as a user runs it: the real executable, or the same command line in this process where that is enough."""

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dray.cli.main import run

DRAYD = str(Path(sys.executable).with_name("drayd"))
PASSWORD = "correct-horse"


@dataclass
class Ended:
    returncode: int
    stdout: str
    stderr: str


def environment(more: dict[str, str] | None) -> dict[str, str]:
    foreign = ("FORCE_COLOR", "GITHUB_ACTIONS", "NO_COLOR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DRAY__") and name not in foreign}
    return {**clean, **(more or {})}


def executable(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    """A process of its own."""
    ended = subprocess.run(
        [DRAYD, *arguments], env=environment(env), cwd=cwd, capture_output=True, text=True, timeout=60
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def drayd(monkeypatch, capsys):
    """The same command line in this process, for the many cases."""

    def call(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("DRAY__")]:
                patch.delenv(name)
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.chdir(cwd or Path.cwd())
            code = run(arguments)
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    directory = tmp_path_factory.mktemp("drayd")
    (directory / "dray.yaml").write_text(
        "objects:\n  url: s3://lake/dray\n  deadline: 90s\nsession:\n  ttl: 30s\n", encoding="utf-8"
    )
    (directory / "bad.yaml").write_text("sesion:\n  ttl: 30s\nlog:\n  segment_bytes: plenty\n", encoding="utf-8")
    return directory


@pytest.mark.slow
def test_version_and_help_answer_on_stdout():
    version = executable("--version")
    assert version.returncode == 0
    assert re.fullmatch(r"drayd \d+\.\d+\.\d+ \(Python [\d.]+\)\n", version.stdout)
    shown = executable("--help")
    assert shown.returncode == 0
    assert "config" in shown.stdout
    assert "Check, show and describe the configuration." in shown.stdout
    assert "\x1b" not in shown.stdout, "no colour where nobody looks"


@pytest.mark.slow
def test_no_color_is_honoured_on_a_terminal():
    def colours(env: dict[str, str]) -> list[bytes]:
        reader, writer = pty.openpty()
        variables = environment({"TERM": "xterm-256color", **env})
        with subprocess.Popen([DRAYD, "--help"], stdout=writer, stderr=writer, env=variables) as process:
            os.close(writer)
            output = b""
            while chunk := _read(reader):
                output += chunk
            assert process.wait(60) == 0
        os.close(reader)
        return re.findall(rb"\x1b\[(?:[0-9]+;)*(?:3[0-7]|9[0-7]|38;5;[0-9]+)m", output)

    plain = {"NO_COLOR": "1"}
    assert colours({})
    assert not colours(plain)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # what a terminal says when the other side is gone
        return b""


def test_a_valid_configuration_is_told_so_with_zero(drayd, home):
    checked = drayd("config", "check", "--config", "dray.yaml", cwd=home)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert re.fullmatch(r"the configuration is valid: \d+ settings, 3 of them set\n", checked.stdout)
    as_json = drayd("config", "check", "--config", "dray.yaml", "--format", "json", cwd=home)
    assert json.loads(as_json.stdout)["valid"] is True


@pytest.mark.slow
def test_file_environment_and_flag_go_over_each_other_and_show_their_origin(home):
    """R-215, CF3"""
    env = {"DRAY__SESSION__TTL": "60s", "DRAY__OBJECTS__DEADLINE": "100s"}
    shown = executable(
        "config", "show", "--origin", "--config", "dray.yaml", "--set", "objects.deadline=2m", env=env, cwd=home
    )
    assert shown.returncode == 0
    assert "  url: s3://lake/dray  # dray.yaml:2\n" in shown.stdout
    assert "  ttl: 1m  # env DRAY__SESSION__TTL\n" in shown.stdout
    assert "  deadline: 2m  # --set objects.deadline\n" in shown.stdout
    assert "  keepalive: 5s  # default\n" in shown.stdout


def test_what_show_prints_can_be_used_as_the_file(drayd, home, tmp_path):
    """R-215: the same input gives the same effective configuration."""
    shown = drayd("config", "show", "--config", "dray.yaml", cwd=home).stdout
    assert yaml.safe_load(shown)["session"]["ttl"] == "30s"
    (tmp_path / "again.yaml").write_text(shown, encoding="utf-8")
    assert drayd("config", "show", "--config", "again.yaml", cwd=tmp_path).stdout == shown


def test_json_has_each_setting_with_value_and_origin(drayd, home):
    shown = drayd("config", "show", "--format=json", "--config", "dray.yaml", cwd=home)
    settings = json.loads(shown.stdout)["settings"]
    assert settings["objects.deadline"] == {"value": "90s", "origin": "dray.yaml:3"}
    assert settings["log.segment_bytes"] == {"value": "64MiB", "origin": "default"}


@pytest.mark.slow
def test_a_bad_configuration_ends_with_two_and_tells_everything_on_stderr(home):
    for command in (["config", "check"], ["config", "show"]):
        checked = executable(*command, "--config", "bad.yaml", cwd=home)
        assert (checked.returncode, checked.stdout) == (2, "")
        assert checked.stderr.splitlines() == [
            "drayd: sesion: no such setting; did you mean session? (bad.yaml:1)",
            'drayd: log.segment_bytes: expected a size such as "64MiB", "4MB" or a number of bytes, '
            'got "plenty" (bad.yaml:4)',
            "  next: mend this, then run `drayd config check`",
        ]


def test_an_unknown_name_in_the_environment_ends_with_two(drayd):
    """CF2"""
    checked = drayd("config", "check", env={"DRAY__NOPE": "1"})
    assert checked.returncode == 2
    assert "env DRAY__NOPE" in checked.stderr


@pytest.mark.slow
def test_errors_are_one_json_object_on_stdout_where_json_is_wanted(home):
    bad = executable("config", "check", "--format", "json", "--config", "bad.yaml", cwd=home)
    assert (bad.returncode, bad.stderr) == (2, "")
    error = json.loads(bad.stdout)["error"]
    assert error["kind"] == "invalid"
    assert [problem["key"] for problem in error["problems"]] == ["sesion", "log.segment_bytes"]
    usage = executable("config", "check", "--nope", "--format=json")
    assert usage.returncode == 2
    assert "--nope" in json.loads(usage.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cofig"], "no such command 'cofig'. Did you mean 'config'?"),
        (["config", "shwo"], "no such command 'shwo'. Did you mean 'show'?"),
        (["config"], "missing command"),
        (["config", "check", "--nope"], "no such option: --nope"),
        (["config", "check", "--format", "xml"], "'xml' is not one of 'text', 'json'"),
        (["config", "check", "--set", "nonsense"], "--set takes section.key=value"),
        (["config", "check", "--config", "nowhere.yaml"], "there is no such configuration file"),
    ],
)
def test_wrong_usage_ends_with_two_in_two_lines_without_a_traceback(drayd, arguments, says):
    refused = drayd(*arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert says in refused.stderr
    assert len(refused.stderr.splitlines()) == 2
    assert refused.stderr.splitlines()[1].startswith("  next: ")


def test_a_secret_is_never_shown(drayd, tmp_path):
    """CF1: neither where it is right nor where something is wrong."""
    (tmp_path / "key").write_text(PASSWORD + "\n", encoding="utf-8")
    env = {"DRAY__OBJECTS__ACCESS_KEY_ID": "me", "DRAY__OBJECTS__SECRET_ACCESS_KEY_FILE": "key"}
    shown = drayd("config", "show", "--origin", env=env, cwd=tmp_path)
    assert shown.returncode == 0
    assert "secret_access_key: '***'  # env DRAY__OBJECTS__SECRET_ACCESS_KEY_FILE\n" in shown.stdout
    for arguments in (
        ["--set", f"objects.secret_acess_key={PASSWORD}"],
        ["--set", f"objects.secret_access_key={PASSWORD}"],
        ["--set", f"objects.endpoint=https://me:{PASSWORD}@store"],
        ["--set", f"objects.secret_access_key={PASSWORD}", "--set", "session.ttl=1s", "--format", "json"],
    ):
        refused = drayd("config", "show", *arguments)
        assert refused.returncode == 2
        assert PASSWORD not in refused.stdout + refused.stderr


def test_the_schema_describes_every_setting_and_takes_what_the_loader_takes(drayd):
    schema = json.loads(drayd("config", "schema").stdout)
    assert schema["additionalProperties"] is False
    keys = set()
    for section, reference in schema["properties"].items():
        described = schema["$defs"][reference["$ref"].rpartition("/")[2]]
        assert described["additionalProperties"] is False
        for name, field in described["properties"].items():
            assert field["description"], f"{section}.{name}"
            keys.add(f"{section}.{name}")
    shown = json.loads(drayd("config", "show", "--format", "json").stdout)["settings"]
    assert set(shown) <= keys
    assert keys - set(shown) == {"objects.secret_access_key_file", "objects.session_token_file"}
    ttl = schema["$defs"]["SessionSettings"]["properties"]["ttl"]
    assert ttl["default"] == "15s"
    assert re.search(ttl["anyOf"][0]["pattern"], "15s")


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error():
    ended = subprocess.run(f"{DRAYD} config schema | head -1", shell=True, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "{\n"
    assert "Traceback" not in ended.stderr
