"""From what was given to settings: precedence, judgement, and origins kept."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dray.config.problems import BadConfig, Problem, nearest, quote
from dray.config.section import FILE_SUFFIX, HIDDEN, Leaf, Section, Shown, leaves, shown
from dray.config.sources import (
    DEFAULT,
    Given,
    Level,
    Origin,
    Override,
    env_name,
    from_environ,
    from_file,
    from_overrides,
    parse_text,
)

S = TypeVar("S", bound=Section)

_LARGEST_SECRET: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One effective setting, as it may be shown."""

    key: str
    value: Shown
    origin: Origin


class Config:
    """The effective settings of a process."""

    def __init__(self, sections: Mapping[str, Section], origins: Mapping[str, Origin]) -> None:
        self._sections = dict(sections)
        self._origins = dict(origins)

    def get(self, kind: type[S]) -> S:
        """The section of this class."""
        for section in self._sections.values():
            if isinstance(section, kind):
                return section
        raise LookupError(f"no section was loaded for {kind.__name__}")

    def entries(self) -> list[Entry]:
        """Every setting with its value and origin; secrets are hidden (CF1)."""
        return [
            Entry(key=key, value=shown(self._value(key)), origin=self._origins.get(key, DEFAULT))
            for key in leaves({name: type(section) for name, section in self._sections.items()})
        ]

    def is_given(self, key: str) -> bool:
        """Whether somebody has said what this setting is."""
        return key in self._origins

    def _value(self, key: str) -> object:
        name, *path = key.split(".")
        value: object = self._sections[name]
        for step in path:
            value = getattr(value, step)
        return value


def load(
    sections: Mapping[str, type[Section]],
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
) -> Config:
    """Read and judge a configuration (CF3). `environ` is the process environment unless given.

    Raises:
        BadConfig: with every problem that was found.
    """
    loading = _Loading(leaves(sections))
    if file is not None:
        loading.take(from_file(file, loading.branches))
    loading.take(from_environ(os.environ if environ is None else environ))
    loading.take(from_overrides(overrides))
    loaded = {name: section for name, kind in sections.items() if (section := loading.build(name, kind)) is not None}
    if loading.problems:
        raise BadConfig(loading.problems)
    return Config(loaded, {key: given.origin for key, given in loading.given.items()})


class _Loading:
    """What has been given so far, and what is wrong with it."""

    def __init__(self, known: Mapping[str, Leaf]) -> None:
        self.known = known
        self.branches = {key[: at.start()] for key in known for at in re.finditer(r"\.", key)}
        self.given: dict[str, Given] = {}
        self.problems: list[Problem] = []

    def take(self, source: Iterable[Given]) -> None:
        """Let a source go over those before it."""
        try:
            for given in source:
                self._take_one(given)
        except BadConfig as error:
            self.problems.extend(error.problems)

    def _take_one(self, given: Given) -> None:
        leaf = self.known.get(given.key) or self._secret_of(given.key)
        if leaf is None:
            self._refuse_unknown(given)
            return
        before = self.given.get(leaf.key)
        if before and before.origin.level == given.origin.level and before.key != given.key:
            message = f"give this or {leaf.key}{FILE_SUFFIX}, not both"
            self._refuse(leaf.key, message, f"{before.origin}, {given.origin}")
        self.given[leaf.key] = given

    def _secret_of(self, key: str) -> Leaf | None:
        """The secret whose file this key names."""
        leaf = self.known.get(key.removesuffix(FILE_SUFFIX))
        return leaf if leaf is not None and leaf.secret else None

    def _refuse(self, key: str, message: str, origin: object) -> None:
        self.problems.append(Problem(key=key, message=message, origin=str(origin)))

    def _refuse_unknown(self, given: Given) -> None:
        """The value stays out of the message: it may be a secret under a misspelt key (CF1, CF2)."""
        files = (key + FILE_SUFFIX for key, leaf in self.known.items() if leaf.secret)
        close = nearest(given.key.lower(), [*self.known, *self.branches, *files])
        if given.key in self.branches:
            hint = "this is a section: name a setting in it"
        elif close is None:
            hint = f"the sections are {', '.join(sorted({key.partition('.')[0] for key in self.known}))}"
        else:
            hint = f"did you mean {env_name(close) if given.origin.level is Level.ENV else close}?"
        self._refuse(given.key, f"no such setting; {hint}", given.origin)

    def build(self, name: str, kind: type[Section]) -> Section | None:
        """The section, or None after its problems were noted."""
        values: dict[str, object] = {}
        for key, given in self.given.items():
            if key.startswith(name + "."):
                try:
                    _plant(values, key.split(".")[1:], _value_of(self.known[key], given))
                except ValueError as error:
                    self._refuse(given.key, str(error), given.origin)
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False, include_input=False):
                self._explain(name, detail)
            return None

    def _explain(self, name: str, detail: ErrorDetails) -> None:
        key = ".".join([name, *(str(part) for part in detail["loc"])])
        what = _expectation(detail["msg"])
        leaf = next((self.known[known] for known in self.known if f"{key}.".startswith(f"{known}.")), None)
        given = self.given.get(leaf.key) if leaf else None
        if leaf is None or given is None:
            self._refuse("", what, self._named_in(what))
        elif leaf.secret:
            # The sentence of a validator of ours could repeat what it judged (CF1).
            self._refuse(given.key, "this is not valid" if detail["type"] == "value_error" else what, given.origin)
        else:
            self._refuse(key, f"{what}, got {quote(given.value)}", given.origin)

    def _named_in(self, text: str) -> str:
        """What the settings are that a message names, and where from, for a relation between them."""
        named = [leaf for key, leaf in self.known.items() if re.search(rf"\b{re.escape(key)}\b", text)]
        return ", ".join(f"{leaf.key} is {self._standing(leaf)}" for leaf in named)

    def _standing(self, leaf: Leaf) -> str:
        given = self.given.get(leaf.key)
        if given is None:
            return "the default"
        return f"{HIDDEN if leaf.secret else quote(given.value)} from {given.origin}"


def _value_of(leaf: Leaf, given: Given) -> object:
    if leaf.secret and given.key != leaf.key:
        return _read_secret(given.value)
    if leaf.secret and given.value == HIDDEN:
        raise ValueError(f'"{HIDDEN}" stands for a secret that was hidden: write the secret itself')
    if not given.text or not isinstance(given.value, str):
        return given.value
    if leaf.optional and given.value == "":
        return None
    return parse_text(given.value) if leaf.structured else given.value


def _read_secret(path: object) -> str:
    if not isinstance(path, str) or not path:
        raise ValueError("expected the path of a file that holds the secret")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_SECRET + 1)
    except OSError as error:
        raise ValueError(f"cannot read the secret from {quote(path)}: {error.strerror}") from error
    if len(content) > _LARGEST_SECRET:
        raise ValueError(f"{quote(path)} is too large to be a secret")
    try:
        secret = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError(f"{quote(path)} is not UTF-8 text") from None  # the cause holds the bytes (CF1)
    if not secret:
        raise ValueError(f"{quote(path)} is empty")
    return secret


def _plant(tree: dict[str, object], path: Sequence[str], value: object) -> None:
    for step in path[:-1]:
        branch = tree.setdefault(step, {})
        assert isinstance(branch, dict), "a leaf is never a branch"
        tree = branch
    tree[path[-1]] = value


def _expectation(message: str) -> str:
    """A sentence of the validator in our words."""
    message = message.removeprefix("Value error, ")
    if message.startswith("Input should be "):
        message = "expected " + message.removeprefix("Input should be ")
    return message[:1].lower() + message[1:]
