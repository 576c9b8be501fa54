"""Stop code that doesn't end, in the main thread of a notebook or in any other.

Nothing is traced until the limit, so the code runs at its full speed.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
import time

from kvviz.words import pluralize

_AGAIN = 0.1  # seconds until code that swallowed the exception is stopped once more
_OWN_FILES = (__file__, contextlib.__file__)


class TimeLimitReached(BaseException):  # no Exception: `except Exception` must not swallow it
    """The code inside `limit_time` took too long, or called the model too often."""


@contextlib.contextmanager
def limit_time(seconds: float):
    """Raise TimeLimitReached in the block after so many seconds.

    In the main thread a timer of the system interrupts sleeping too; elsewhere, and on Windows,
    the exception comes between two lines of Python.
    """
    is_main = threading.current_thread() is threading.main_thread()
    limit = _limit_by_signal if is_main and hasattr(signal, "setitimer") else _limit_by_thread
    with limit(seconds):
        yield


@contextlib.contextmanager
def _limit_by_signal(seconds):
    error = TimeLimitReached(f"it did not end within {pluralize(round(seconds), 'second')}")
    outside, alarms = sys._getframe(), []

    def stop(signum, frame):
        if frame.f_code.co_filename in _OWN_FILES:
            return  # the block is being left, and what's left of that must run; else it comes again
        alarms.append(signum)
        if len(alarms) > 1:  # something swallows the exception: raise it at the next line as well
            _raise_at_each_line(frame, outside, error)
        raise error

    tracer = sys.gettrace()
    start, handler = time.monotonic(), signal.signal(signal.SIGALRM, stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if len(alarms) > 1:
            sys.settrace(tracer)
        if left:  # a timer that was running before goes on
            left = max(left - (time.monotonic() - start), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _raise_at_each_line(frame, outside, error):
    """Raise at the next line of each of these frames, which can be outside of any `try`."""

    def trace(frame, event, _):
        if event == "line":
            raise error
        return trace if frame.f_trace else None

    callers = set()
    while outside is not None:
        callers.add(outside)
        outside = outside.f_back
    while frame is not None and frame not in callers:
        if "site-packages" not in frame.f_code.co_filename:
            frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)


@contextlib.contextmanager
def _limit_by_thread(seconds):
    raise_in, done = ctypes.pythonapi.PyThreadState_SetAsyncExc, threading.Event()
    thread = ctypes.c_ulong(threading.get_ident())

    def watch():
        wait = seconds
        while not done.wait(wait):
            raise_in(thread, ctypes.py_object(TimeLimitReached))
            wait = _AGAIN

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        raise_in(thread, None)  # one that was set and not raised yet
