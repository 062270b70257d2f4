"""Refuses two things of one name: `python -m tools.check_doubles`.

Looks at the public classes and type names at the top of the modules of
`src`. Who reads `Refused` should know which one without a look at the
imports. The simulator, the histories of `dray.testing` and the SDK stand outside
the product and have vocabularies of their own: a name of theirs may be one of the
product's too. What else has two meanings is in the table below, with the
reason why no reader takes one for the other.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

GENERATED: Final = "src/dray/servers/kafka/messages"
APART: Final = ("src/dray/sim", "src/dray/testing", "src/dray/client")

ALLOWED: Final[Mapping[str, str]] = {
    "Bounds": "of a config of groups; of what is present in a store",
    "Client": "the SDK with asyncio and without, which users import by its module",
    "Codec": "compression of records; all versions of one Kafka message, which handlers never name",
    "Codes": "of one answer about offsets: the service makes them, its handler tells them",
    "Consumer": "the SDK with asyncio and without, which users import by its module",
    "DeadLetterBox": "the SDK with asyncio and without, which users import by its module",
    "Denied": "a verdict of groups; credentials of a store that are refused",
    "Fields": "what a noun shows; varints of one record, inside one module",
    "Heap": "the SDK with asyncio and without, which users import by its module",
    "History": "two scenarios of the simulator keep what their clients saw, each in its own form",
    "Identity": "identity.json of a directory; who opens sessions, made of it",
    "Job": "the SDK with asyncio and without, which users import by its module",
    "Joined": "a verdict of groups; a directory that takes part in another's cluster",
    "Key": "of a config, as commands carry it; of a wake-up",
    "Line": "bytes of answers that wait; the line of time of one session",
    "Objects": "the port of a store; the machine's table of what lies there",
    "Offsets": "the noun of committed offsets; an option of a Spark read",
    "Origin": "where a setting comes from; where an object does",
    "Part": "a row of a packed command, and three private shapes of one module each",
    "Partition": "the number in a command; by name, as clients of groups ask",
    "Piece": "bytes of an object in the cache; batches for one Spark task",
    "Place": "of an object; an option of a Spark read",
    "Places": "inside a log; of a broker on its machine",
    "Plain": "what a checkpoint packs; Produce requests without compression, read by twin and by server",
    "Pressure": "the bytes themselves; the port by which a server asks about them",
    "Reader": "of checkpoints; of one version of a Kafka message",
    "Refused": "the log did not take an entry; the machine judged a command: both mean that nothing was changed",
    "Row": "of a checkpoint; of the twin of a C function",
    "Run": "of neighbouring rows in a fetch; of bits in a mask",
    "Shown": "JSON, of settings and of nouns",
    "Source": "of the rows of a fetch; of the metadata of a node",
    "Span": "of a stream for Spark; two indexes inside one module",
    "State": "of a group; of a check of the doctor",
    "Times": "an option of a Spark read; how long a connection is waited for",
    "TopicRow": "of the catalog, for groups; of the page",
    "Waiter": "for wake-ups; for a place on the Kafka port",
    "Waiting": "a verdict of groups; a batch and its answer",
    "Writer": "of checkpoints; of the entries of a replica; of one version of a Kafka message",
}
"""Names with two meanings that nobody mixes up."""


def check(root: Path, allowed: Mapping[str, str] = ALLOWED) -> list[str]:
    """Every name that is given twice, and every exception that is not needed."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted((root / "src").rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        if relative.startswith(GENERATED):
            continue
        vocabulary = next((one for one in APART if relative.startswith(one)), "")
        for name, line in _names(ast.parse(path.read_text(encoding="utf-8"))):
            places[vocabulary, name].append(f"{relative}:{line}")
    doubled = {name: found for (_, name), found in places.items() if len(found) > 1}
    findings = [
        f"{found[-1]}: {name} is also the name of {', '.join(found[:-1])}"
        for name, found in sorted(doubled.items())
        if name not in allowed
    ]
    return findings + [
        f"tools/check_doubles.py: {name} has one meaning now: allow it no more"
        for name in allowed
        if name not in doubled
    ]


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Classes and types that a module gives to others, with their lines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not _is_variable(node.value):
            name = node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        else:
            continue
        if name[0].isupper() and not name.isupper():
            yield name, node.lineno


def _is_variable(value: ast.expr) -> bool:
    """A variable for types means nothing outside its module."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def main() -> int:
    findings = check(Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(finding)
    print(f"doubled names: {len(findings)} findings" if findings else "doubled names: each has one meaning")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
