"""Readers and writers of Kafka messages, as Python text.

One emitter serves one version or many: a branch whose outcome is the same in
every version it is asked for is not emitted.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from tools.kafka_schema import FIXED, NEVER, SIZED, Body, Field, Struct


class Emitter:
    """Lines of one function, for a set of versions."""

    def __init__(self, body: Body, versions: Sequence[int], used: set[str]) -> None:
        self.body = body
        self.versions = list(versions)
        self.used = used  # names from the runtime, and struct formats as "=hiq"
        self.parts = body.role == "response"
        self.lines: list[str] = []
        self.depth = 1
        self.scopes = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def name(self, runtime: str) -> str:
        self.used.add(runtime)
        return runtime

    def struct(self, verb: str, kinds: Sequence[str]) -> str:
        letters = "".join(FIXED[kind][2] for kind in kinds)
        self.used.add("=" + ",".join(kinds))
        return f"_{verb}_{letters}"

    def scope(self) -> str:
        self.scopes += 1
        return f"_{self.scopes}"

    def branch(self, signature: Callable[[int], Hashable], emit: Callable[[int], None]) -> None:
        """Emit once per run of versions with the same signature; `emit` gets the first version of the run."""
        runs = [v for i, v in enumerate(self.versions) if i == 0 or signature(v) != signature(self.versions[i - 1])]
        if len(runs) == 1:
            emit(runs[0])
            return
        for index, first in enumerate(reversed(runs)):
            word = "else:" if first == runs[0] else f"{'el' if index else ''}if version >= {first}:"
            with self.block(word):
                before = len(self.lines)
                emit(first)
                if len(self.lines) == before:
                    self.line("pass")
        if self.lines[-2:] == ["    " * self.depth + "else:", "    " * (self.depth + 1) + "pass"]:
            del self.lines[-2:]

    def wire(self, f: Field, version: int, noun: str, verb: str) -> str:
        """The runtime function for a value of this version."""
        compact = "compact_" if self.body.flexes(version) and not f.rigid else ""
        nullable = "nullable_" if version in f.nullable else ""
        return self.name(f"{verb}_{compact}{nullable}{noun}")

    def signature(self, f: Field) -> Callable[[int], Hashable]:
        return lambda v: (
            (v in f.versions, self.body.flexes(v) and not f.rigid, v in f.nullable) if v in f.versions else ()
        )

    def groups(self, struct: Struct) -> Iterator[list[Field]]:
        """Untagged fields in wire order; neighbours of fixed size and equal presence together."""
        run: list[Field] = []
        for f in (f for f in struct.fields if f.tag is None and any(v in f.versions for v in self.versions)):
            same = run and [v in f.versions for v in self.versions] == [v in run[0].versions for v in self.versions]
            if run and not (f.fixed and same):
                yield run
                run = []
            if f.fixed:
                run.append(f)
            else:
                yield [f]
        if run:
            yield run

    def tagged(self, struct: Struct) -> list[Field]:
        return sorted(
            (f for f in struct.fields if f.tag is not None and any(v in f.versions for v in self.versions)),
            key=lambda f: f.tag or 0,
        )

    def flexible_signature(self, version: int) -> Hashable:
        return self.body.flexes(version)

    def default(self, f: Field) -> str:
        text = f.python_default(self.parts)
        if text == "ZERO_UUID":
            self.used.add("ZERO_UUID")
        if f.struct and text.endswith("()") and text != "()":
            return f"_DEFAULT_{f.struct.name}"
        return text


def smallest(struct: Struct, body: Body, versions: Sequence[int]) -> int:
    """The least bytes that the struct takes in any of the versions."""
    return min(_smallest_in(struct, body, v) for v in versions)


def _smallest_in(struct: Struct, body: Body, version: int) -> int:
    flexible = body.flexes(version)
    total = 1 if flexible else 0
    for f in struct.fields:
        if version in f.versions and f.tag is None:
            total += _smallest_value(f, body, version)
    return max(1, total)


def _smallest_value(f: Field, body: Body, version: int) -> int:
    compact = body.flexes(version) and not f.rigid
    if f.array:
        return 1 if compact else 4
    if f.struct:
        return 1 if version in f.nullable else _smallest_in(f.struct, body, version)
    if f.kind in FIXED:
        return FIXED[f.kind][1]
    return 1 if compact else SIZED[f.kind][2]


class ReadEmitter(Emitter):
    """A function from bytes to the message."""

    def function(self, name: str, switched: bool) -> list[str]:
        cls = self.body.struct.name
        version = "version: int, " if switched else ""
        self.depth = 0
        with self.block(f"def {name}({version}frame: memoryview, pos: int) -> tuple[{cls}, int, int]:"):
            most = self.name("ANSWER_ELEMENTS" if cls.endswith("Response") else "ELEMENTS")
            self.line(f"left = {most}")
            call = self.read_struct(self.body.struct, "")
            self.line(f"return {call}, pos, {most} - left")
        return self.lines

    def read_struct(self, struct: Struct, scope: str) -> str:
        """Emit the reading of all fields; returns the expression that builds the struct."""
        for group in self.groups(struct):
            if group[0].fixed:
                self.read_run(group, scope)
            else:
                self.read_field(group[0], scope)
        self.read_tags(struct, scope)
        present = {f.name for f in struct.fields if any(v in f.versions for v in self.versions)}
        values = [f.name + scope if f.name in present else self.default(f) for f in struct.fields]
        return f"{struct.name}({', '.join(values)})"

    def read_run(self, run: list[Field], scope: str) -> None:
        names = ", ".join(f.name + scope for f in run) + ("," if len(run) == 1 else "")
        get = self.struct("get", [f.kind for f in run])
        size = sum(FIXED[f.kind][1] for f in run)

        def emit(version: int) -> None:
            if version in run[0].versions:
                self.line(f"{names} = {get}(frame, pos)")
                self.line(f"pos += {size}")
            else:
                for f in run:
                    self.line(f"{f.name}{scope} = {self.default(f)}")

        self.branch(lambda v: v in run[0].versions, emit)

    def read_field(self, f: Field, scope: str) -> None:
        if f.array:
            self.read_array(f, scope)
        elif f.struct:
            self.read_nested(f, scope)
        else:
            self.read_sized(f, scope)

    def read_sized(self, f: Field, scope: str) -> None:
        target = f.name + scope
        if len({self.signature(f)(v) for v in self.versions}) > 1:
            self.line(f"{target}: {f.python_type(self.parts)}")

        def emit(version: int) -> None:
            if version not in f.versions:
                self.line(f"{target} = {self.default(f)}")
            elif f.kind == "records" and self.parts:
                self.line(f"view{scope}, pos = {self.wire(f, version, 'records', 'get')}(frame, pos)")
                self.line(f"{target} = None if view{scope} is None else (view{scope},)")
            else:
                self.line(f"{target}, pos = {self.wire(f, version, f.kind, 'get')}(frame, pos)")

        self.branch(self.signature(f), emit)

    def read_nested(self, f: Field, scope: str) -> None:
        assert f.struct
        if len({self.signature(f)(v) for v in self.versions}) > 1:
            raise SystemExit(f"not supported: struct {f.name} changes its presence between versions")
        inner, target = self.scope(), f.name + scope
        if self.versions[0] not in f.nullable:
            self.line(f"{target} = {self.read_struct(f.struct, inner)}")
            return
        self.line(f"{target}: {f.struct.name} | None = None")
        self.line("pos += 1")
        with self.block("if frame[pos - 1] < 128:"):
            self.line(f"{target} = {self.read_struct(f.struct, inner)}")

    def element_size(self, f: Field) -> int:
        if f.struct:
            return smallest(f.struct, self.body, self.versions)
        if f.kind in FIXED:
            return FIXED[f.kind][1]
        return 1 if any(self.body.flexes(v) for v in self.versions) else SIZED[f.kind][2]

    def read_array(self, f: Field, scope: str) -> None:
        inner, target = self.scope(), f.name + scope
        nullable = any(v in f.nullable for v in self.versions)

        def emit(version: int) -> None:
            if version in f.versions:
                get = self.wire(f, version, "count", "get")
                self.line(f"count{inner}, pos = {get}(frame, pos, {self.element_size(f)})")
            else:
                self.line(f"count{inner} = {-1 if f.default == 'null' else 0}")

        self.branch(self.signature(f), emit)
        self.line(f"left -= count{inner}")
        with self.block("if left < 0:"):
            self.line(f"raise {self.name('crowded')}()")
        self.line(f"{target}: {f.python_type(self.parts)}{' = None' if nullable else ''}")
        if nullable:
            with self.block(f"if count{inner} >= 0:"):
                self.read_elements(f, target, inner)
        else:
            self.read_elements(f, target, inner)

    def read_elements(self, f: Field, target: str, inner: str) -> None:
        if f.kind in FIXED:
            letter, size = FIXED[f.kind][:2]
            self.line(f'{target} = {self.name("unpack_from")}(f">{{count{inner}}}{letter}", frame, pos)')
            self.line(f"pos += {size} * count{inner}")
            return
        self.line(f"list{inner}: list[{f.element}] = []")
        with self.block(f"for _ in range(count{inner}):"):
            if f.struct:
                call = self.read_struct(f.struct, inner)
                self.line(f"list{inner}.append({call})")
            else:
                plain = Field(f"item{inner}", f.kind, False, None, f.versions, rigid=f.rigid)
                self.read_sized(plain, "")
                self.line(f"list{inner}.append(item{inner})")
        self.line(f"{target} = list{inner}")

    def read_tags(self, struct: Struct, scope: str) -> None:
        known = self.tagged(struct)
        for f in known:
            self.line(f"{f.name}{scope}: {f.python_type(self.parts)} = {self.default(f)}")

        def emit(version: int) -> None:
            if not self.body.flexes(version):
                return
            if not known:
                self.line(f"pos = {self.name('skip_tags')}(frame, pos)")
                return
            with self.block("if frame[pos] == 0:"):
                self.line("pos += 1")
            with self.block("else:"):
                self.read_known_tags(known, scope)

        self.branch(self.flexible_signature, emit)

    def read_known_tags(self, known: list[Field], scope: str) -> None:
        inner = self.scope()
        self.line(f"count{inner}, pos = {self.name('get_tag_count')}(frame, pos)")
        with self.block(f"for _ in range(count{inner}):"):
            self.line(f"tag{inner}, pos, end{inner} = {self.name('get_tag')}(frame, pos)")
            outer = self.versions
            for index, f in enumerate(known):
                self.versions = [v for v in outer if v in f.versions]
                since = f" and version >= {self.versions[0]}" if len(self.versions) < len(self.flexibles(outer)) else ""
                with self.block(f"{'el' if index else ''}if tag{inner} == {f.tag}{since}:"):
                    self.read_tagged(f, scope)
                    self.line(f"{self.name('check_tag')}(pos, end{inner})")
            self.versions = outer
            with self.block("else:"):
                self.line(f"pos = {self.name('skip_tag')}(pos, end{inner})")

    def flexibles(self, versions: Sequence[int]) -> list[int]:
        return [v for v in versions if self.body.flexes(v)]

    def read_tagged(self, f: Field, scope: str) -> None:
        hidden = Field(f"value_{f.name}", f.kind, f.array, f.struct, f.versions, f.nullable, f.default)
        if hidden.fixed:
            self.read_run([hidden], scope)
        else:
            self.read_field(hidden, scope)
        self.line(f"{f.name}{scope} = {hidden.name}{scope}")


class WriteEmitter(Emitter):
    """A function from the message to bytes."""

    def element_function(self, struct: Struct) -> list[str]:
        """A writer of one element alone, of all versions."""
        self.depth = 0
        self.add = "add"
        with self.block(f"def {element_writer(struct)}(version: int, m: {struct.name}) -> bytes:"):
            self.line("out: list[Buffer] = []")
            self.line("add = out.append")
            self.write_struct(struct, "m")
            self.line('return b"".join(out)')
        return self.lines

    def function(self, name: str, switched: bool) -> list[str]:
        self.records = _has_records(self.body.struct)
        version = "version: int, " if switched else ""
        self.depth = 0
        self.add = "add"
        with self.block(f"def {name}({version}m: {self.body.struct.name}) -> list[Buffer]:"):
            self.line("out: list[Buffer] = []")
            self.line("add = out.append")
            if self.records:
                self.line("parts: list[Buffer] = []")
            self.write_struct(self.body.struct, "m")
            if self.records:
                self.line('parts.append(b"".join(out))')
                self.line("return parts")
            else:
                apart = any(f.struct and f.apart for f in self.body.struct.fields)
                self.line(f"return {self.name('whole')}(out)" if apart else 'return [b"".join(out)]')
        return self.lines

    def write_struct(self, struct: Struct, m: str) -> None:
        for group in self.groups(struct):
            if group[0].fixed:
                self.write_run(group, m)
            else:
                self.write_field(group[0], m)
        self.write_tags(struct, m)

    def write_run(self, run: list[Field], m: str) -> None:
        put = self.struct("put", [f.kind for f in run])
        values = ", ".join(f"{m}.{f.name}" for f in run)

        def emit(version: int) -> None:
            if version in run[0].versions:
                self.line(f"{self.add}({put}({values}))")

        self.branch(lambda v: v in run[0].versions, emit)

    def value(self, f: Field, m: str, version: int) -> str:
        text = f"{m}.{f.name}" if f.name else m
        if f.nullable != NEVER and version not in f.nullable:
            return f"{self.name('present')}({text})"
        return text

    def write_field(self, f: Field, m: str) -> None:
        if f.array:
            self.write_array(f, m)
        elif f.struct:
            self.write_nested(f, m)
        elif f.kind == "records":
            self.write_records(f, m)
        else:
            self.write_sized(f, m)

    def write_sized(self, f: Field, m: str) -> None:
        def emit(version: int) -> None:
            if version in f.versions:
                self.line(f"{self.add}({self.wire(f, version, f.kind, 'put')}({self.value(f, m, version)}))")

        self.branch(self.signature(f), emit)

    def write_records(self, f: Field, m: str) -> None:
        inner = self.scope()
        value = f"{m}.{f.name}"
        if not self.parts:
            value = f"None if {value} is None else ({value},)"
        self.line(f"records{inner} = {value}")

        def emit(version: int) -> None:
            self.line(f"{self.add}({self.wire(f, version, 'size', 'put')}(records{inner}))")

        self.branch(self.signature(f), emit)
        with self.block(f"if records{inner}:"):
            self.line('parts.append(b"".join(out))')
            self.line("out.clear()")
            self.line(f"parts.extend(records{inner})")

    def write_nested(self, f: Field, m: str) -> None:
        assert f.struct
        inner = f"m{self.scope()}"
        self.line(f"{inner} = {m}.{f.name}")
        if self.versions[0] not in f.nullable:
            self.write_struct(f.struct, inner)
            return
        with self.block(f"if {inner} is None:"):
            self.line(f'{self.add}(b"\\xff")')
        with self.block("else:"):
            self.line(f'{self.add}(b"\\x01")')
            self.write_struct(f.struct, inner)

    def write_array(self, f: Field, m: str) -> None:
        absent = any(v not in f.versions for v in self.versions)

        def emit(version: int) -> None:
            if version in f.versions:
                put = self.wire(f, version, "count", "put")
                self.line(f"{self.add}({put}({self.value(f, m, version)}))")

        self.branch(self.signature(f), emit)
        tests = []
        if absent:
            tests.append(self.presence(f))
        if f.nullable != NEVER:
            tests.append(f"{m}.{f.name} is not None")
        if tests:
            with self.block(f"if {' and '.join(tests)}:"):
                self.write_elements(f, m)
        else:
            self.write_elements(f, m)

    def presence(self, f: Field) -> str:
        inside = [v for v in self.versions if v in f.versions]
        if inside[-1] == self.versions[-1]:
            return f"version >= {inside[0]}"
        return f"{inside[0]} <= version <= {inside[-1]}"

    def write_elements(self, f: Field, m: str) -> None:
        if f.kind in FIXED:
            text = f"{m}.{f.name}"
            self.line(f'{self.add}({self.name("pack")}(f">{{len({text})}}{FIXED[f.kind][0]}", *{text}))')
            return
        item = f"m{self.scope()}"
        outer = self.versions
        self.versions = [v for v in outer if v in f.versions]
        with self.block(f"for {item} in {m}.{f.name}:"):
            if f.struct and f.apart:
                self.line(
                    f"{self.add}({item} if isinstance({item}, bytes) else {element_writer(f.struct)}(version, {item}))"
                )
            elif f.struct:
                self.write_struct(f.struct, item)
            else:
                self.write_sized(Field("", f.kind, False, None, f.versions, rigid=f.rigid), item)
        self.versions = outer

    def write_tags(self, struct: Struct, m: str) -> None:
        known = self.tagged(struct)

        def emit(version: int) -> None:
            if not self.body.flexes(version):
                return
            if not known:
                self.line(f'{self.add}(b"\\0")')
                return
            inner = self.scope()
            self.line(f"tags{inner}: list[tuple[int, list[Buffer]]] = []")
            for f in known:
                self.write_tagged(f, m, inner)
            self.line(f'{self.add}({self.name("put_tags")}(tags{inner}) if tags{inner} else b"\\0")')

        self.branch(self.flexible_signature, emit)

    def write_tagged(self, f: Field, m: str, section: str) -> None:
        inner, outer, add = self.scope(), self.versions, self.add
        self.versions = [v for v in outer if v in f.versions]
        flexible = [v for v in outer if self.body.flexes(v)]
        since = f"version >= {self.versions[0]} and " if len(self.versions) < len(flexible) else ""
        with self.block(f"if {since}{self.differs(f, m)}:"):
            self.line(f"out{inner}: list[Buffer] = []")
            self.line(f"add{inner} = out{inner}.append")
            self.add = f"add{inner}"
            if f.fixed:
                self.write_run([f], m)
            else:
                self.write_field(f, m)
            self.line(f"tags{section}.append(({f.tag}, out{inner}))")
        self.versions, self.add = outer, add

    def differs(self, f: Field, m: str) -> str:
        text, default = f"{m}.{f.name}", self.default(f)
        if default == "None":
            return f"{text} is not None"
        if default == "()":
            return text
        if f.struct:
            return f"{text} is not {default} and {text} != {default}"
        return f"{text} != {default}"


def element_writer(struct: Struct) -> str:
    """The name of the function that writes one element."""
    return "write_" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", struct.name).lower()


def _has_records(struct: Struct) -> bool:
    return any(f.kind == "records" or (f.struct and _has_records(f.struct)) for f in struct.fields)
