"""Run a learner's code, and find their own lines when it raises."""

from __future__ import annotations

import contextlib
import dis
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path

import torch

from kvviz.checking.watchdog import limit_time

_DOES_NOTHING = ("RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST")
_INSTALLED = ("site-packages", "dist-packages", "<frozen ")
_INSTALLED += (str(Path(__file__).parents[1]), sysconfig.get_paths()["stdlib"])
_JUDGING = {path.name for path in Path(__file__).parent.glob("*_rules.py")}
_JUDGING |= {"causes.py", "columns.py", "compare.py", "evidence.py"}


@dataclass(frozen=True)
class Attempt:
    """What a call of the learner's code returned, or the exception it raised."""

    result: object = None
    error: BaseException | None = None


def attempt(function, *arguments, seconds: float | None = None) -> Attempt:
    """Call the learner's function; what it raises is returned, not passed on.

    That includes `exit()`. Only an interrupt from the keyboard passes: it is meant for the check.
    After so many `seconds` the call is stopped, with a TimeLimitReached.
    """
    limit = contextlib.nullcontext() if seconds is None else limit_time(seconds)
    try:
        with limit:
            return Attempt(function(*arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Attempt(error=error)


def calls(target, function, *arguments) -> bool:
    """Whether a call of the function, which may raise, comes to run the function `target`.

    For as long as the call takes, `target` raises instead.
    """
    target = getattr(target, "__wrapped__", target)
    code, target.__code__ = target.__code__, _stop.__code__
    try:
        function(*arguments)
    except Exception as error:
        return _STOPPED in str(error)
    finally:
        target.__code__ = code
    return False


_STOPPED = "kvviz: this call is only a question"


def _stop(*_, **__):  # runs with the globals of `target`, so its words stand here once more
    raise RuntimeError("kvviz: this call is only a question")


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of a traceback that are the learner's: in no package, and not in Python's own."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f for f in frames if not any(part in f.filename for part in _INSTALLED)]


def own_lines(error: BaseException) -> str:
    """The learner's own lines of a traceback, one below the other; empty if there are none."""
    frames = own_frames(error)
    if len(frames) > 6:  # a function that calls itself
        frames = [*frames[:3], *frames[-3:]]
    return "\n".join(f"line {f.lineno} of {f.name}:  {f.line}" for f in frames)


def is_checkers_own(error: BaseException) -> bool:
    """Whether the check itself failed: in a rule or a comparison, which run no learner's code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).name in _JUDGING and not own_frames(error)


def describe_error(error: BaseException) -> str:
    """Its type and message, on one line and no longer than that."""
    try:
        says = " ".join(str(error).split())
    except Exception:
        says = ""
    says = says if len(says) <= 300 else f"{says[:300]}..."
    return f"{type(error).__name__}: {says}" if says else type(error).__name__


def is_unwritten(function) -> bool:
    """Whether the body of a function is still only `...`, with no docstring either."""
    if not hasattr(function, "__code__") or function.__doc__:
        return False
    instructions = list(dis.get_instructions(function))
    returns = [each.argval for each in instructions if "CONST" in each.opname]
    return all(each.opname in _DOES_NOTHING for each in instructions) and returns in ([None], [...])


def to_tensor(answer) -> torch.Tensor | None:
    """A tensor of the same numbers, also from an array or nested lists; None if it can't be one.

    >>> from kvviz.checking.learner_code import to_tensor
    >>> to_tensor([[17, 3], [88, 41]]).shape
    torch.Size([2, 2])
    """
    if isinstance(answer, torch.Tensor):
        return answer.detach()
    if not (hasattr(answer, "__array__") or isinstance(answer, list | tuple)):
        return None
    try:
        return torch.as_tensor(answer)
    except (ValueError, TypeError, RuntimeError):
        return None
