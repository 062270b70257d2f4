"""What nobody uses is found, and what somebody uses is left alone."""

from pathlib import Path

import pytest

from tools.check_dead import check


def found(root: Path, allowed: dict[str, str] | None = None, **files: str) -> list[str]:
    """The paths of what is dead in `src/p`, whose modules are given by name; `users` is a tool, `tests` a test."""
    places = {"users": "tools/users.py", "tests": "tests/test_a.py", "init": "src/p/__init__.py"}
    for name, content in {"init": "", **files}.items():
        path = root / places.get(name, f"src/p/{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return [finding.rpartition(" ")[2] if "nobody" in finding else finding for finding in check(root, allowed or {})]


def test_a_function_a_class_a_method_and_a_constant_that_nobody_uses_are_found(tmp_path):
    code = "MOST = 3\n\n\nclass A:\n    def go(self): ...\n\n\ndef make():\n    return A()\n"
    assert found(tmp_path, a=code) == ["p.a.MOST", "p.a.A.go", "p.a.make"]


@pytest.mark.parametrize(
    "user",
    ["from p.a import make\nmake()\n", "from p import a\na.make()\n", 'NAME = "p.a.make"\nprint(NAME)\n'],
    ids=["by name", "by its module", "in a string"],
)
def test_what_another_module_uses_is_alive(tmp_path, user):
    assert found(tmp_path, a="def make(): ...\n", b=user) == []


def test_a_use_of_the_same_name_elsewhere_is_no_use(tmp_path):
    assert found(tmp_path, a="def make(): ...\n", b="def make(): ...\n\n\nmake()\n") == ["p.a.make"]


def test_calling_oneself_is_no_use(tmp_path):
    code = "def make():\n    make()\n\n\nclass A:\n    def go(self):\n        self.go()\n\n\nA()\n"
    assert found(tmp_path, a=code) == ["p.a.make", "p.a.A.go"]


def test_what_a_package_hands_on_is_alive_only_if_somebody_takes_it(tmp_path):
    files = {"init": 'from p.a import make\n\n__all__ = ["make"]\n', "a": "def make(): ...\n"}
    assert found(tmp_path, **files) == ["p.a.make"]
    assert found(tmp_path, **files, users="from p import make\nmake()\n") == []


def test_tests_are_no_users(tmp_path):
    assert found(tmp_path, a="def make(): ...\n", tests="from p.a import make\nmake()\n") == ["p.a.make"]


def test_what_a_library_calls_is_left_alone(tmp_path):
    code = (
        "import asyncio\n\n\nclass A(asyncio.Protocol):\n    def data_received(self, data): ...\n\n\n"
        "A()\n\n\n@app.command()\ndef run(): ...\n"
    )
    assert found(tmp_path, a=code) == []


def test_an_exception_needs_to_be_needed(tmp_path):
    assert found(tmp_path, {"p.*.make": "why"}, a="def make(): ...\n") == []
    assert found(tmp_path, {"p.*.make": "why"}, a="") == [
        "tools/check_dead.py: p.*.make is used, or gone: allow it no more"
    ]
