"""What is shown of a query that takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable

Progress = Callable[[float | None], object]

_SIGNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def of(choice: bool | Progress | None) -> Progress | None:
    """What a session's `progress` stands for: a function of its own, or none; where it is left open, a line in a terminal or a
    notebook."""
    if callable(choice):
        return choice
    shows = _is_watched() if choice is None else choice
    return _line if shows else None


def _is_watched() -> bool:
    stream = sys.stderr
    return "ipykernel" in sys.modules or (stream is not None and hasattr(stream, "isatty") and stream.isatty())


def _line(seconds: float | None) -> None:
    if sys.stderr is None:
        return
    if seconds is None:
        text = "\r\x1b[K"
    else:
        text = f"\r{_SIGNS[int(seconds * 5) % len(_SIGNS)]} running {seconds:.0f} s"
    sys.stderr.write(text)
    sys.stderr.flush()
