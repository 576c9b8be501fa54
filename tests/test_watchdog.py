"""Code that doesn't end is stopped, and code that ends just at its limit leaves nothing behind."""

import signal
import time

import pytest

from kvviz.checking.watchdog import TimeLimitReached, limit_time

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")


def test_a_block_that_ends_just_at_its_limit_leaves_no_timer_and_no_handler():
    before, stopped = signal.getsignal(signal.SIGALRM), 0
    for i in range(1000):
        try:
            with limit_time(0.0005 + i % 50 * 1e-6):
                end = time.perf_counter() + 0.0005
                while time.perf_counter() < end:
                    pass
        except TimeLimitReached:
            stopped += 1
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        assert signal.getsignal(signal.SIGALRM) == before
    assert stopped < 1000  # some ended in time


def test_a_block_that_does_not_end_is_stopped_although_it_swallows_the_exception():
    start = time.monotonic()
    with pytest.raises(TimeLimitReached), limit_time(0.05):
        while True:
            try:
                time.sleep(0.01)
            except BaseException:
                pass
    assert time.monotonic() - start < 60
