"""Tell a method that is still to be written from one that is written and wrong."""

from __future__ import annotations

import dis
import inspect

from kvviz.checking.learner_code import is_unwritten


def is_stub(function) -> bool:
    """Whether the body is still only `...`: `pass` and `return None` may be a mistake."""
    if not is_unwritten(function):
        return False
    try:
        return "..." in inspect.getsource(function)
    except (OSError, TypeError):  # no source to look at
        return True


def has_written(cache_class, name: str) -> bool:
    """Whether a class has a method of this name, and not only a stub of it."""
    return hasattr(cache_class, name) and not is_stub(getattr(cache_class, name))


def find_raising(error):
    """The traceback of the frame that raised an error; None if it was never raised."""
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return last


def is_stub_error(error) -> bool:
    """Whether a method of the learner's was left as it was: raising is the first thing it does."""
    last = find_raising(error)
    if not isinstance(error, NotImplementedError) or last is None:
        return False
    done = [each for each in dis.get_instructions(last.tb_frame.f_code) if each.offset]
    done = [each.opname for each in done if each.offset <= last.tb_lasti]
    return done[-1:] == ["RAISE_VARARGS"] and all(name in _TO_RAISE for name in done[:-1])


_TO_RAISE = "RESUME NOP CACHE EXTENDED_ARG COPY_FREE_VARS MAKE_CELL PUSH_NULL PRECALL CALL".split()
_TO_RAISE += "LOAD_GLOBAL LOAD_NAME LOAD_CONST".split()


def shorten(lines: str) -> str:
    """Lines without repetitions, as of a method that calls itself; the last six of them."""
    return "\n".join(list(dict.fromkeys(lines.splitlines()))[-6:])
