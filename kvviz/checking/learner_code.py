"""Run a learner's code, and find their own lines when it raises."""

from __future__ import annotations

import dis
import traceback
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])
_DOES_NOTHING = ("RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST")


@dataclass(frozen=True)
class Attempt:
    """What a call of the learner's code returned, or the exception it raised."""

    result: object = None
    error: Exception | None = None


def attempt(function, *arguments) -> Attempt:
    """Call the learner's function; an exception it raises is returned, not passed on."""
    try:
        return Attempt(function(*arguments))
    except Exception as error:
        return Attempt(error=error)


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of a traceback that are neither in this package nor in an installed one."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f for f in frames if "site-packages" not in f.filename and _PACKAGE not in f.filename]


def own_lines(error: BaseException) -> str:
    """The learner's own lines of a traceback, one below the other; empty if there are none."""
    frames = own_frames(error)
    return "\n".join(f"line {f.lineno} of {f.name}:  {f.line}" for f in frames)


def is_unwritten(function) -> bool:
    """Whether the body of a function is still only `...`, with no docstring either."""
    if not hasattr(function, "__code__") or function.__doc__:
        return False
    instructions = list(dis.get_instructions(function))
    returns = [each.argval for each in instructions if "CONST" in each.opname]
    return all(each.opname in _DOES_NOTHING for each in instructions) and returns in ([None], [...])
