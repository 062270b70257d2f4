"""The schema notation of `dray.servers.kafka`: text to APIs, messages, structs and fields."""

import re
from dataclasses import dataclass, field

# type -> (struct letter, size, letter in names, Python type, default)
FIXED = {
    "int8": ("b", 1, "b", "int", "0"),
    "int16": ("h", 2, "h", "int", "0"),
    "int32": ("i", 4, "i", "int", "0"),
    "int64": ("q", 8, "q", "int", "0"),
    "bool": ("?", 1, "o", "bool", "False"),
    "uuid": ("16s", 16, "u", "bytes", "ZERO_UUID"),
}
SIZED = {"string": ("str", '""', 2), "bytes": ("bytes", 'b""', 4), "records": ("Buffer", 'b""', 4)}


@dataclass(frozen=True)
class Range:
    """Versions, both ends included."""

    first: int
    last: int

    @staticmethod
    def parse(text: str) -> "Range":
        if text.endswith("+"):
            return Range(int(text[:-1]), 1 << 15)
        first, _, last = text.partition("-")
        return Range(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Range(1, 0)


APART = frozenset({"DescribeConfigsResult", "DescribeLogDirsTopic", "MetadataResponseTopic"})
"""Structs with a writer of their own, so that an element can be written by itself, and its bytes be kept."""


@dataclass
class Struct:
    name: str
    fields: list["Field"] = field(default_factory=list)


@dataclass
class Field:
    name: str
    kind: str  # a key of FIXED or SIZED, or "struct"
    array: bool
    struct: Struct | None
    versions: Range
    nullable: Range = NEVER
    default: str | None = None
    tag: int | None = None
    rigid: bool = False

    @property
    def fixed(self) -> bool:
        return not self.array and self.kind in FIXED

    @property
    def element(self) -> str:
        if self.struct:
            return self.struct.name
        return FIXED[self.kind][3] if self.kind in FIXED else SIZED[self.kind][0]

    @property
    def apart(self) -> bool:
        """Whether an element may be given as the bytes it was written to before."""
        return self.array and self.struct is not None and self.struct.name in APART

    def python_type(self, parts: bool) -> str:
        base = "Parts" if self.kind == "records" and parts else self.element
        base = f"{base} | bytes" if self.apart else base
        base = f"Sequence[{base}]" if self.array else base
        return base if self.nullable == NEVER else f"{base} | None"

    def python_default(self, parts: bool) -> str:
        if self.default == "null":
            return "None"
        if self.array or (self.kind == "records" and parts):
            return "()"
        if self.struct:
            return f"{self.struct.name}()"
        if self.default is None:
            return FIXED[self.kind][4] if self.kind in FIXED else SIZED[self.kind][1]
        if self.kind == "string":
            return f'"{self.default}"'
        return self.default.capitalize() if self.kind == "bool" else str(int(self.default, 0))


@dataclass
class Body:
    """A message: one direction of an API, or a message of its own."""

    struct: Struct
    role: str
    versions: Range
    flexible: int | None

    def flexes(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


@dataclass
class Api:
    key: int | None
    name: str
    versions: Range
    flexible: int | None
    bodies: list[Body] = field(default_factory=list)


_HEAD = re.compile(r"(?:api (?P<key>\d+)|data) (?P<name>\w+) versions (?P<versions>\S+) flexible (?P<flexible>\S+)$")
_LINE = re.compile(r"(?P<indent> +)(?P<name>\w+) (?P<type>\S+) (?P<versions>\S+)(?: \[(?P<attributes>.*)\])?$")


def parse(text: str) -> list[Api]:
    apis: list[Api] = []
    path: list[Struct] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if head := _HEAD.match(line):
            flexible = None if head["flexible"] == "never" else int(head["flexible"])
            key = None if head["key"] is None else int(head["key"])
            apis.append(Api(key, head["name"], Range.parse(head["versions"]), flexible))
            if key is None:
                path = [_open_body(apis[-1], "data")]
        elif line in ("request", "response"):
            path = [_open_body(apis[-1], line)]
        elif match := _LINE.match(line):
            depth = len(match["indent"]) // 2
            del path[depth:]
            new = _field(match)
            path[-1].fields.append(new)
            if new.struct:
                path.append(new.struct)
        else:
            raise SystemExit(f"schema:{number}: not understood: {line}")
    for api in apis:
        for body in api.bodies:
            _trim(body.struct, api.versions)
    return apis


def _open_body(api: Api, role: str) -> Struct:
    name = api.name if role == "data" else api.name + role.capitalize()
    api.bodies.append(Body(Struct(name), role, api.versions, api.flexible))
    return api.bodies[-1].struct


def _field(match: re.Match[str]) -> Field:
    kind = match["type"].removeprefix("[]")
    struct = None
    if kind not in FIXED and kind not in SIZED:
        kind, struct = "struct", Struct(kind)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", match["name"]).lower()
    new = Field(snake, kind, match["type"].startswith("[]"), struct, Range.parse(match["versions"]))
    for attribute in (match["attributes"] or "").split("; "):
        word, _, rest = attribute.partition(" ")
        if word == "null":
            new.nullable = Range.parse(rest)
        elif word == "def":
            new.default = rest
        elif word == "tag":
            new.tag = int(rest.split()[0])
        elif attribute == "flex none":
            new.rigid = True
        elif word not in ("", "ign"):
            raise SystemExit(f"schema: attribute not understood: {attribute}")
    return new


def _trim(struct: Struct, versions: Range) -> None:
    """Drop fields that no version we generate has."""
    struct.fields = [
        f for f in struct.fields if f.versions.first <= versions.last and f.versions.last >= versions.first
    ]
    for each in struct.fields:
        if each.struct:
            _trim(each.struct, versions)
