"""What the caller asks the keeper for: one program, its files and limits, and the walls to put around it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

RUN, TRY = b"run", b"try"  # what can be asked for: a program, or which walls stand


@dataclass(frozen=True)
class Walls:
    """Which of the kernel's means hold a program."""

    namespaces: bool
    landlock: bool
    seccomp: bool
    stranger: bool  # it runs as a user of its own


@dataclass(frozen=True)
class Order:
    """One program to run."""

    walls: Walls
    interpreter: str
    arguments: list[str]
    readable: list[str]
    executable: list[str]
    files: dict[str, str]
    stdin: str
    cpu_seconds: float
    wall_seconds: float
    memory_mb: int
    disk_mb: int
    processes: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `from_json` makes an equal order."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Return the order that `to_json` was called on."""
        return cls(**{**data, "walls": Walls(**data["walls"])})
