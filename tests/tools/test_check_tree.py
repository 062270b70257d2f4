"""The rules of the tree: each finds what it is for, and nothing else."""

import subprocess
from pathlib import Path

import pytest

from tools.check_tree import check

# Written apart, so that this file keeps the rules that it tests.
REGISTRY = "py" + "pi.org"
MACHINE = "/ro" + "ot/"
SLEEP = "time" + ".sleep(1)"
SKIP = "pytest" + ".skip('later')"
EXPECTED_TO_FAIL = "@pytest.mark." + "xfa" + "il"
WORK = "TO" + "DO"


@pytest.fixture
def tree(tmp_path):
    """Makes a repository with these files and returns the findings."""

    def findings(files: dict[str, str | bytes]) -> list[str]:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
        return [str(finding) for finding in check(tmp_path)]

    return findings


def test_a_source_file_has_at_most_600_lines_unless_it_is_generated(tree):
    long = "x = 1\n" * 601
    found = tree(
        {
            "src/dray/long.py": long,
            "src/dray/fits.py": "x = 1\n" * 600,
            "src/dray/servers/kafka/messages/generated.py": long,
            "requirements/dev.lock": long,
        }
    )
    assert found == ["src/dray/long.py:601: 601 lines, at most 600: find the second idea and move it"]


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "manager"])
def test_a_name_that_says_nothing_is_refused_as_module_and_as_package(tree, name):
    found = tree({f"src/dray/{name}.py": "", f"src/dray/{name}/wal.py": "", f"src/dray/{name}_of_old.py": ""})
    assert len(found) == 2
    assert all(f"the name '{name}' says nothing" in finding for finding in found)


@pytest.mark.parametrize(
    "line",
    [
        f"index = https://{REGISTRY}/simple",
        "https://registry" + ".npmjs.org",
        "https://repo1" + ".maven.org/maven2",
        "GOPROXY=https://proxy" + ".golang.org",
        "https://static.crates" + ".io",
        f"path = '{MACHINE}x'",
        "cd /wo" + "rk/main",
    ],
)
def test_places_of_one_machine_and_hosts_of_registries_are_refused_in_any_file(tree, line):
    assert len(tree({"Makefile": f"ok\n{line}\n"})) == 1


def test_a_path_that_only_looks_like_one_of_this_machine_is_fine(tree):
    assert tree({"docs/a.md": "see example.com/wo" + "rk/x and $DIR/wo" + "rk/ and framewo" + "rk/x\n"}) == []


@pytest.mark.parametrize("line", [SLEEP, SKIP, EXPECTED_TO_FAIL, "pytest.import" + "orskip('x')"])
def test_a_test_that_waits_or_is_left_out_needs_a_reason_on_the_line(tree, line):
    found = tree(
        {
            "tests/test_a.py": f"{line}\n{line}  # the kernel gives no other sign\n{line}(reason='reads /proc')\n",
            "src/a.py": f"{line}\n",
        }
    )
    assert len(found) == 1
    assert found[0].startswith("tests/test_a.py:1: ")
    assert "give the reason" in found[0]


def test_a_test_among_the_peers_says_that_it_is_one(tree):
    found = tree({
        "tests/peers/test_marked.py": "pytestmark = pytest.mark.peers\n",
        "tests/peers/groups/test_forgotten.py": "def test_it(): ...\n",
        "tests/peers/groups/playing.py": "",
    })  # fmt: skip
    assert [finding.split(":")[0] for finding in found] == ["tests/peers/groups/test_forgotten.py"]


def test_open_work_needs_a_number(tree):
    found = tree({"src/a.py": f"# {WORK}: later\n# {WORK}(#12): known\n# {WORK}(me)\n", "docs/a.md": "FIX" + "ME\n"})
    assert [finding.partition(": ")[0] for finding in found] == ["docs/a.md:1", "src/a.py:1", "src/a.py:3"]


def test_binary_files_and_files_that_git_does_not_track_are_left_alone(tree, tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("out/\n")
    assert tree({"logo.png": b"\0" + REGISTRY.encode(), "out/x.txt": REGISTRY, "latin.txt": b"\xe9\n"}) == []


@pytest.mark.slow
def test_this_tree_is_clean():
    assert [str(finding) for finding in check(Path(__file__).parents[2])] == []
