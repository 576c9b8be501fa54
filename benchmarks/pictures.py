"""What the stepper's fast path saves: a new frame against the same picture drawn afresh, each step
of 48 tokens both ways; medians of paired ratios. Processor time: others do not count.

The two take turns after a few steps, not after each: a stepper draws frame after frame, and a
picture drawn in between would push all that it needs out of the processor's caches.
"""

import time
from statistics import median, quantiles

import kvviz as kv
from benchmarks.stepper import recorded

TOKENS, LAYER, ALIKE = 48, 13, 6
TIMES, SLOWEST = 8, 120  # at least so many times faster; milliseconds, 95 of 100 frames


def spent(call) -> float:
    """Milliseconds of processor time."""
    start = time.thread_time()
    assert call()
    return 1000 * (time.thread_time() - start)


def afresh(walk) -> kv.Picture:
    """The picture that the stepper shows now, through matplotlib's own way to pixels."""
    return kv.Picture(walk._frames.make_figure(walk._frames.squares(*walk._key)), "")


def pairs(run) -> list[tuple[float, float]]:
    """(a new frame, drawn afresh) for each step: some steps of one, then the same of the other."""
    walk = kv.stepper(run, layer=LAYER)
    calls = {"frame": lambda: walk.frame, "afresh": lambda: afresh(walk).png()}
    taken = {name: [0.0] * len(run) for name in calls}
    for number, first in enumerate(range(0, len(run), ALIKE)):
        for name in list(calls) if number % 2 else list(calls)[::-1]:
            for walk.step in range(first, min(first + ALIKE, len(run))):
                taken[name][walk.step] = spent(calls[name])
    return list(zip(*taken.values(), strict=True))


def main() -> bool:
    within = True
    for cached in (True, False):
        run = recorded(43, cached=cached, layers=[LAYER])
        assert run[-1].visible == TOKENS
        taken = pairs(run)
        frame, whole = (median(each) for each in zip(*taken, strict=True))
        ratio = median(slow / fast for fast, slow in taken)
        slowest = quantiles([fast for fast, _ in taken], n=20)[-1]
        print(f"{'with the cache' if cached else 'without a cache'}, {len(taken)} pairs:")
        print(f"a new frame: {frame:.0f} ms, 95 of 100 within {slowest:.0f} ms, at most {SLOWEST}")
        print(f"drawn afresh: {whole:.0f} ms; {ratio:.1f} times the frame's, at least {TIMES}")
        within &= ratio >= TIMES and slowest < SLOWEST
    return within
