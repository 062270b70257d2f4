"""Refuses two things of one name: `python -m tools.check_doubles`.

Looks at the public classes and type names at the top of the modules of
`src`. Who reads `Place` should know which one without a look at the
imports. The simulator, the histories of `dray.testing` and the SDK stand outside
the product and have vocabularies of their own: a name of theirs may be one of the
product's too. What else has two meanings is in the table below, module by
module, with what it means there: a newcomer does not get in under the name of
another.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

SOURCE: Final = "src/dray"
GENERATED: Final = "src/dray/servers/kafka/messages"
APART: Final = ("src/dray/sim", "src/dray/testing", "src/dray/client")

ALLOWED: Final[Mapping[str, Mapping[str, str]]] = {
    "Bounds": {"groups.configs": "of a config of groups", "retention.present": "of what is present in a store"},
    "Client": {"client.client": "with asyncio", "client.sync": "without; users import it by its module"},
    "Codec": {
        "records.layout": "compression of records",
        "servers.kafka.codec": "all versions of one Kafka message; handlers never name it",
    },
    "Codes": {
        "groups.offsets": "of one answer about offsets, as the service makes them",
        "servers.kafka.apis.offset_commit": "the same answer, as its handler tells it",
    },
    "Consumer": {"client.consumer": "with asyncio", "client.sync": "without; users import it by its module"},
    "DeadLetterBox": {"client.heap": "with asyncio", "client.sync": "without; users import it by its module"},
    "Denied": {
        "machine.groups.codes": "a verdict of groups",
        "objects.port": "credentials of a store that are refused",
    },
    "Fields": {
        "machine.noun": "what a noun shows",
        "records.pure": "of one record, inside one module",
        "wal.codec": "of a batch, inside one module",
    },
    "Heap": {"client.heap": "with asyncio", "client.sync": "without; users import it by its module"},
    "History": {
        "sim.scenarios.ordering": "what the clients of one scenario saw, inside one module",
        "sim.workload": "what the clients of all others saw",
    },
    "Identity": {"node.directory": "identity.json of a directory", "replica.session": "who opens sessions, made of it"},
    "Job": {"client.job": "with asyncio", "client.sync": "without; users import it by its module"},
    "Joined": {"machine.groups.codes": "a verdict of groups", "node.joining": "logs that another process keeps"},
    "Key": {"machine.command": "of a config, as commands carry it", "replica.wakeups": "of a wake-up"},
    "Line": {"fetch.line": "bytes of answers that wait", "machine.timeline": "of time, of one session"},
    "Objects": {
        "machine.garbage": "the machine's table of what lies in a store",
        "objects.port": "the port of a store",
    },
    "Offsets": {"machine.offsets": "the noun of committed offsets", "pipeline.options": "an option of a Spark read"},
    "Origin": {"config.sources": "where a setting comes from", "machine.objects": "where an object does"},
    "Part": {
        "groups.offsets": "of a commit, inside one module",
        "machine.command": "a row of a packed command",
        "machine.keys": "of a key, inside one module",
        "node.metadata": "one domain, as a process takes part in it",
        "records.columns": "of what becomes columns, inside one module",
    },
    "Partition": {"groups.offsets": "by name, as clients of groups ask", "machine.command": "the number in a command"},
    "Piece": {"fetch.cache": "bytes of an object in the cache", "pipeline.plan": "batches for one Spark task"},
    "Place": {"fetch.plan": "of an object", "pipeline.options": "an option of a Spark read"},
    "Places": {"log.verified": "inside a log", "node.space": "of a broker on its machine"},
    "Plain": {
        "machine.packing": "what a checkpoint packs",
        "records.pure_request": "Produce requests without compression, read by the twin",
        "servers.kafka.plain": "Produce requests without compression, served",
    },
    "Pressure": {
        "produce.pressure": "the bytes themselves",
        "servers.kafka.admission.relief": "the port by which a server asks about them",
    },
    "Reader": {"machine.packing": "of checkpoints", "servers.kafka.codec": "of one version of a Kafka message"},
    "Row": {"machine.packing": "of a checkpoint", "records.pure_request": "of the twin of a C function"},
    "Run": {"fetch.plan": "of neighbouring rows", "machine.groups.masks": "of bits in a mask"},
    "Shown": {"config.section": "JSON, of settings", "machine.noun": "JSON, of nouns"},
    "Source": {"fetch.sources.source": "of the rows of a fetch", "node.metadata": "of the metadata of a node"},
    "Span": {
        "machine.acks": "of offsets, inside one module",
        "pipeline.plan": "of a stream for Spark",
        "records.pure": "of bytes, inside one module",
    },
    "State": {
        "machine.groups.roster": "of a classic group",
        "machine.heaps.rows": "of a message in a heap",
        "node.doctor": "of a check of the doctor; named with its module",
    },
    "Times": {
        "pipeline.options": "an option of a Spark read",
        "servers.kafka.admission.patience": "how long a connection is waited for",
    },
    "TopicRow": {"machine.groups.beats": "of the catalog, for groups", "servers.http.overview": "of the page"},
    "Waiter": {"replica.wakeups": "for wake-ups", "servers.kafka.admission.budget": "for a place on the Kafka port"},
    "Waiting": {"machine.groups.codes": "a verdict of groups", "produce.flush": "a batch and who waits for its answer"},
    "Writer": {
        "machine.packing": "of checkpoints",
        "replica.writer": "of the entries of a replica",
        "servers.kafka.codec": "of one version of a Kafka message",
    },
}
"""Names with meanings that nobody mixes up: what each is, by its module. In one more module it is a finding."""


def check(root: Path, allowed: Mapping[str, Mapping[str, str]] = ALLOWED) -> list[str]:
    """Every name that is given twice, and every exception that is not needed."""
    doubled = _doubled(root)
    findings = []
    for (_, name), modules in sorted(doubled.items()):
        known = allowed.get(name, {})
        new = [module for module in modules if module not in known]
        for module in new if len(new) < len(modules) else new[1:]:
            others = ", ".join(where for one, where in modules.items() if one != module)
            findings.append(f"{modules[module]}: {name} is also the name of {others}")
    needed = {(name, module) for (_, name), modules in doubled.items() for module in modules}
    return findings + [
        f"tools/check_doubles.py: {module} has no doubled {name} now: allow it no more"
        for name, modules in allowed.items()
        for module in modules
        if (name, module) not in needed
    ]


def _doubled(root: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Names with more than one meaning in a vocabulary: their modules, and the lines there."""
    found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for path in sorted((root / SOURCE).rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        if relative.startswith(GENERATED):
            continue
        vocabulary = next((one for one in APART if relative.startswith(one)), "")
        module = ".".join(path.relative_to(root / SOURCE).with_suffix("").parts)
        for name, line in _names(ast.parse(path.read_text(encoding="utf-8"))):
            found[vocabulary, name][module] = f"{relative}:{line}"
    return {key: modules for key, modules in found.items() if len(modules) > 1}


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
