"""What `drayd doctor` is told of the engine that keeps the log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSurvey:
    """What was seen, and what to do about it."""

    said: tuple[str, ...]
    failed: str = ""
    next: str = ""
