"""Finds what nobody uses: `python -m tools.check_dead`.

A definition of `src` is alive if `src`, a tool or a benchmark uses it, or if
it is promised to users: by an entry point, an example, or a page of `docs`
that shows code. Tests do not count, but for the simulator and `dray.testing`,
which are there for tests: other code that only its test calls is dead, and
its test with it. Top-level names are followed through imports, also where a
package hands them on; methods are known by their name alone, so a dead one
that shares its name with a live one is not seen.

Not looked at: fields of classes (files and the wire have them for others),
dunder names, generated messages, methods of classes with a base from another
library, which calls them, and what a decorator hands to somebody (commands,
routes, validators).
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

OWN_NAME: Final = "check_dead.py"
SOURCE: Final = "src"
USERS: Final = ("tools", "bench")
FOR_TESTS: Final = ("dray.sim", "dray.testing")
OWN_BASES: Final = frozenset({"abc", "builtins", "collections.abc", "dataclasses", "enum", "typing"})
"""Modules whose classes call nothing of those that derive from them."""
GENERATED: Final = (
    ("servers", "kafka", "messages"),
    ("api", "v1", "heaps_pb2"),
    ("log", "etcd", "etcd_pb2"),
    ("log", "oxia", "oxia_pb2"),
)
PROMISES: Final = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "docs/testing.md",
    "docs/spark.md",
    "docs/queues.md",
    "examples",
)
"""Where users are told what they may import."""

PASSIVE: Final = frozenset(
    (
        "abstractmethod", "asynccontextmanager", "cache", "cached_property", "classmethod", "contextmanager",
        "dataclass", "final", "lru_cache", "override", "overload", "property", "runtime_checkable", "setter",
        "staticmethod",
    )
)  # fmt: skip
"""Decorators that change a definition and hand it to nobody."""

ALLOWED: Final[Mapping[str, str]] = {
    "dray.log.server.LogServer.listen_tcp": "the way in for brokers on other machines",
    "dray.servers.kafka.apis.*.ENDPOINT": "imported by the name in `support`, at the first request",
    "dray.servers.kafka.codec.???_compact_nullable_bytes": "each type of the notation has its two functions",
    "pyspark_dray.DefaultSource": "found by Spark, by this name",
}
"""What is alive although nothing here says so, by its path in the code, each with its reason."""

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOTTED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.:][A-Za-z_][A-Za-z0-9_]*)*")
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined:
    """Something that can be used by its name."""

    module: str
    scope: str
    """The class that it belongs to; empty at the top of a module."""
    name: str
    line: int

    @property
    def path(self) -> str:
        return ".".join(part for part in (self.module, self.scope, self.name) if part)


@dataclass(slots=True, kw_only=True)
class Module:
    """One module: what it defines and what it mentions."""

    name: str
    path: str
    is_package: bool
    defined: list[Defined] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    """How often each bare name is used; a definition's use of itself does not count."""
    attributes: dict[str, int] = field(default_factory=dict)
    strings: set[str] = field(default_factory=set)
    taken: list[tuple[str, str, str]] = field(default_factory=list)
    """(module, name, name here) of `from module import name`."""


def check(root: Path, allowed: Mapping[str, str] = ALLOWED) -> list[str]:
    """Everything that nobody uses, and every exception that is not needed."""
    source = list(_modules(root, SOURCE))
    users = source + [module for place in USERS for module in _modules(root, place)]
    by_product = _Uses(users, _promised(root))
    by_tests = _Uses(users + list(_modules(root, "tests")), _promised(root))
    dead: dict[str, str] = {}
    for module in source:
        uses = by_tests if module.name.startswith(FOR_TESTS) else by_product
        for one in module.defined:
            if not uses.have(one):
                dead[one.path] = f"{module.path}:{one.line}: nobody uses {one.path}"
    findings = [text for path, text in dead.items() if not any(fnmatchcase(path, one) for one in allowed)]
    unneeded = [one for one in allowed if not any(fnmatchcase(path, one) for path in dead)]
    return findings + [f"tools/check_dead.py: {one} is used, or gone: allow it no more" for one in unneeded]


class _Uses:
    """What some modules use, of each other and of themselves."""

    def __init__(self, modules: Iterable[Module], promised: set[str]) -> None:
        by_name = {module.name: module for module in modules}
        self._top = _used_names(by_name)
        self._attributes = {name for module in by_name.values() for name in module.attributes}
        self._words = promised.union(*(module.strings for module in by_name.values()))

    def have(self, one: Defined) -> bool:
        if one.name in self._words:
            return True
        return one.name in self._attributes if one.scope else (one.module, one.name) in self._top


def _modules(root: Path, place: str) -> Iterator[Module]:
    for path in sorted((root / place).rglob("*.py")):
        if path.name == OWN_NAME:
            continue  # what is allowed here is not used here
        parts = path.relative_to(root / SOURCE if place == SOURCE else root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        module = Module(name=name, path=path.relative_to(root).as_posix(), is_package=is_package)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            _mention(module, node, ())
        if not any(parts[1 : 1 + len(made)] == made for made in GENERATED):
            module.defined.extend(_definitions(module, "", tree.body))
        yield module


def _definitions(module: Module, scope: str, body: list[ast.stmt]) -> Iterator[Defined]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _definitions(module, scope, [*node.body, *node.orelse])
        elif isinstance(node, Definition):
            if not _is_dunder(node.name) and not _is_handed_on(node):
                yield Defined(module=module.name, scope=scope, name=node.name, line=node.lineno)
            if isinstance(node, ast.ClassDef) and not scope and not _has_foreign_base(module, node):
                yield from _definitions(module, node.name, node.body)
        elif not scope and isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and not _is_dunder(name.id):
                        yield Defined(module=module.name, scope=scope, name=name.id, line=node.lineno)


def _has_foreign_base(module: Module, node: ast.ClassDef) -> bool:
    homes = {here: origin for origin, _, here in module.taken}
    for base in node.bases:
        parts = ast.unparse(base).partition("[")[0].split(".")
        origin = homes.get(parts[0], module.name if len(parts) == 1 else parts[0])
        if origin.partition(".")[0] != module.name.partition(".")[0] and origin not in OWN_BASES:
            return True
    return False


def _is_dunder(name: str) -> bool:
    return name == "_" or (name.startswith("__") and name.endswith("__"))


def _is_handed_on(node: Definition) -> bool:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if name not in PASSIVE:
            return True
    return False


def _mention(module: Module, node: ast.AST, inside: tuple[str, ...]) -> None:
    """Count what a node mentions, but for the names of the definitions that it lies in."""
    match node:
        case ast.ImportFrom(module=str(origin)):
            module.taken.extend((origin, alias.name, alias.asname or alias.name) for alias in node.names)
            return
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return
        case ast.Name(id=name, ctx=ast.Load()) if name not in inside:
            module.names[name] = module.names.get(name, 0) + 1
        case ast.Attribute(attr=name, value=value) if name not in inside or not _is_self(value):
            module.attributes[name] = module.attributes.get(name, 0) + 1
        case ast.Constant(value=str(text)) if len(text) < 200 and _DOTTED.fullmatch(text):
            module.strings.update(_WORD.findall(text))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            for decorator in node.decorator_list:
                _mention(module, decorator, inside)
            inside = (*inside, name)
    for child in ast.iter_child_nodes(node):
        _mention(module, child, inside)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _used_names(modules: Mapping[str, Module]) -> set[tuple[str, str]]:
    """(module, name) of all top-level names that are used, followed to where they are defined."""
    used: set[tuple[str, str]] = set()
    for module in modules.values():
        used.update((module.name, name) for name in module.names)
        homes = {here: (origin, name) for origin, name, here in module.taken}
        for here, (origin, name) in homes.items():
            if f"{origin}.{name}" in modules:  # a module was taken: its names are attributes here
                used.update((f"{origin}.{name}", attribute) for attribute in module.attributes)
            elif not module.is_package or here in module.names:
                used.add((origin, name))
    # A package hands on what it takes, if somebody takes it from there.
    handed = {
        (module.name, here): (origin, name)
        for module in modules.values()
        for origin, name, here in module.taken
        if module.is_package
    }
    for one in list(used):
        while one in handed and handed[one] not in used:
            one = handed[one]
            used.add(one)
    return used


def _promised(root: Path) -> set[str]:
    """All words of the places that tell users what there is."""
    words: set[str] = set()
    for place in PROMISES:
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.is_file():
                words.update(_WORD.findall(file.read_text(encoding="utf-8")))
    return words


def main() -> int:
    findings = check(Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(finding)
    print(f"dead code: {len(findings)} findings" if findings else "dead code: everything is used")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
