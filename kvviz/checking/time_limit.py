"""Run something that may never end, and come back in any case."""

from __future__ import annotations

import ctypes
import threading
import time

from kvviz.checking.learner_code import Attempt, attempt

STACK = 2**24  # bytes


class TooLong(BaseException):
    """Stops code that ran past its time; no Exception, so that `except Exception` lets it by."""


class StillRunning(TimeoutError):
    """What comes back of code that was stopped, or left behind."""


def attempt_within(seconds: float, function) -> Attempt:
    """Call a function in a thread of its own; whatever it raises, and running on, is an error.

    A thread that can't be stopped, asleep or deep in a library, is left behind.
    """
    box: list[Attempt] = []

    def run():
        try:
            box.append(Attempt(function()))
        except BaseException as error:  # SystemExit, too, is only what their code did
            box.append(Attempt(error=error))

    before = threading.stack_size(STACK)  # where a thread's own is small, recursion would end all
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    try:
        thread.join(seconds)
    except BaseException:  # Stop was pressed
        _stop(thread)
        raise
    if thread.is_alive():
        _stop(thread)
    if box and not isinstance(box[0].error, TooLong):
        return box[0]
    return Attempt(error=StillRunning(f"still running after {seconds:g} seconds"))


def attempt_inside(function, *arguments) -> Attempt:
    """`attempt` within `attempt_within`: the end of the time isn't an error like others."""
    called = attempt(function, *arguments)
    if isinstance(called.error, TooLong):
        raise called.error
    return called


def _stop(thread, tries=20):
    """Raise in another thread, more than once, since their code may catch it."""
    for _ in range(tries):
        if not thread.is_alive():
            return
        name = ctypes.c_ulong(thread.ident)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(name, ctypes.py_object(TooLong))
        thread.join(0.05)
        time.sleep(0)
