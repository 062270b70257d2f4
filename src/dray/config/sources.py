"""Where values are given: the file, the environment, flags.

Each source yields what was given, under the key it was given by. Whether the
key exists and what the value means is judged by the loader.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

import yaml

from dray.config.problems import BadConfig, Problem

ENV_PREFIX: Final = "DRAY__"
_LARGEST_FILE: Final = 1 << 20


class Level(IntEnum):
    """A value of a higher level goes over one of a lower (CF3)."""

    DEFAULT = 0
    FILE = 1
    ENV = 2
    FLAG = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value came from, in words that lead there."""

    level: Level
    where: str

    def __str__(self) -> str:
        return self.where


DEFAULT: Final = Origin(level=Level.DEFAULT, where="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value under the key it was given by."""

    key: str
    value: object
    origin: Origin
    text: bool = False
    """The value is text whatever its meaning, as in the environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A value from the command line. `flag` is how the user wrote it."""

    key: str
    value: object
    flag: str


def parse_set(argument: str) -> Override:
    """`--set section.key=value`.

    Raises:
        BadConfig: it has no `=`, or no key.
    """
    key, equals, value = argument.partition("=")
    if not equals or not key.strip():
        # What was written may be a secret without its key: it is not repeated (CF1).
        raise BadConfig([Problem(key="", message="--set takes section.key=value", origin="--set")])
    return Override(key=key.strip(), value=value, flag=f"--set {key.strip()}")


def from_overrides(overrides: Sequence[Override]) -> Iterator[Given]:
    for override in overrides:
        origin = Origin(level=Level.FLAG, where=override.flag)
        yield Given(key=override.key, value=override.value, origin=origin, text=isinstance(override.value, str))


def env_name(key: str) -> str:
    """`session.ttl` is `DRAY__SESSION__TTL`."""
    return ENV_PREFIX + key.replace(".", "__").upper()


def from_environ(environ: Mapping[str, str]) -> Iterator[Given]:
    """Names with one underscore behind DRAY are not ours: an orchestrator makes such names for a service."""
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX):
            path = name.removeprefix(ENV_PREFIX)
            # Another spelling of the same key would make the winner a matter of order (CF3).
            plain = path == path.upper() and "." not in path
            key = path.lower().replace("__", ".") if plain else path
            origin = Origin(level=Level.ENV, where=f"env {name}")
            yield Given(key=key, value=environ[name], origin=origin, text=True)


def from_file(path: Path, branches: Collection[str]) -> Iterator[Given]:
    """The leaves of a YAML file; `branches` are the keys that hold other keys.

    Raises:
        BadConfig: there is no such file, or it is not YAML as we take it.
    """
    loader = _Loader(_read(path))
    try:
        root = loader.get_single_node()
        if root is None or _is_null(root):
            return
        if not isinstance(root, yaml.MappingNode):
            raise BadConfig([Problem(key="", message="expected sections with settings in them", origin=str(path))])
        yield from _walk(loader, root, "", branches, path)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadConfig([_not_yaml(error, path)]) from None  # a chained cause would show the line (CF1)
    finally:
        loader.dispose()


def parse_text(text: str) -> object:
    """The value of a list or a mapping that was given as text.

    Raises:
        ValueError: it is not YAML.
    """
    loader = _Loader(text)
    try:
        value: object = loader.get_single_data()
    except (yaml.YAMLError, RecursionError):
        raise ValueError("expected YAML, such as [one, two]") from None
    finally:
        loader.dispose()
    return value


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        self.refuse_doubles(node)
        return super().construct_mapping(node, deep=deep)

    def refuse_doubles(self, node: yaml.MappingNode) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in seen:
                raise _Double(f"{key.value!r} stands twice, in lines {seen[key.value]} and {line}: keep one")
            seen[key.value] = line


class _Double(ValueError):
    """A key stands twice."""


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        message = "there is no such configuration file: check --config"
    except OSError as error:
        message = f"cannot read the configuration file: {error.strerror}"
    else:
        if len(content) <= _LARGEST_FILE:
            try:
                return content.decode("utf-8-sig")
            except UnicodeDecodeError:
                message = "the configuration file is not UTF-8 text"
        else:
            message = "the configuration file is larger than 1 MiB"
    raise BadConfig([Problem(key="", message=message, origin=str(path))])


def _walk(
    loader: _Loader, node: yaml.MappingNode, prefix: str, branches: Collection[str], path: Path
) -> Iterator[Given]:
    loader.refuse_doubles(node)
    loader.flatten_mapping(node)  # `<<` puts what it merges in front, so that the own keys win
    for key_node, value_node in node.value:
        origin = Origin(level=Level.FILE, where=f"{path}:{key_node.start_mark.line + 1}")
        if not isinstance(key_node, yaml.ScalarNode):
            raise BadConfig([Problem(key="", message="expected the name of a setting", origin=str(origin))])
        key = prefix + key_node.value
        if key not in branches:
            yield Given(key=key, value=loader.construct_object(value_node, deep=True), origin=origin)
        elif isinstance(value_node, yaml.MappingNode):
            yield from _walk(loader, value_node, key + ".", branches, path)
        elif not _is_null(value_node):
            raise BadConfig([Problem(key=key, message="expected settings under this section", origin=str(origin))])


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _not_yaml(error: BaseException, path: Path) -> Problem:
    """Says where, but never quotes the file: the line may hold a secret (CF1)."""
    mark = getattr(error, "problem_mark", None)
    where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else str(path)
    match error:
        case _Double():
            message = str(error)
        case yaml.composer.ComposerError() | yaml.constructor.ConstructorError():
            message = "not YAML as drayd takes it: put a value that begins with * & or ! in quotes"
        case _:
            message = "not YAML: check the indentation, and put values with special characters in quotes"
    return Problem(key="", message=message, origin=where)
