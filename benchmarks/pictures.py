"""What the stepper's fast path saves: a new frame against the same picture drawn from scratch.

Every step of a run of 48 tokens is drawn both ways. The results are medians of paired ratios of
processor time, which other programs don't change. The two ways take turns every few steps, not at
every step: a stepper draws frame after frame, and a picture drawn in between would empty the
processor's caches.
"""

import time
from statistics import median, quantiles

import kvviz as kv
from benchmarks.stepper import record

LAYER, N_NEW, TURN = 13, 43, 6  # 43 new tokens after a prompt of 6 show 48 columns
TIMES, SLOWEST = 8, 120  # at least this many times faster; milliseconds for 95 of 100 frames


def measure(call) -> float:
    """Milliseconds of processor time."""
    start = time.thread_time()
    assert call()
    return 1000 * (time.thread_time() - start)


def draw(walk) -> kv.Picture:
    """The picture that the stepper shows now, turned into pixels by matplotlib."""
    return kv.Picture(walk._frames.make_figure(walk._frames.squares(*walk._key)), "")


def measure_pairs(run) -> list[tuple[float, float]]:
    """(a new frame, from scratch) for each step: a few steps one way, then the same the other."""
    walk = kv.stepper(run, layer=LAYER)
    calls = {"frame": lambda: walk.frame, "scratch": lambda: draw(walk).png()}
    taken = {name: [0.0] * len(run) for name in calls}
    for number, first in enumerate(range(0, len(run), TURN)):
        for name in list(calls) if number % 2 else list(calls)[::-1]:
            for walk.step in range(first, min(first + TURN, len(run))):
                taken[name][walk.step] = measure(calls[name])
    return list(zip(*taken.values(), strict=True))


def main(n_new=N_NEW) -> bool:
    within = True
    for cached in (True, False):
        run = record(n_new, cached=cached, layers=[LAYER])
        taken = measure_pairs(run)
        frame, whole = (median(each) for each in zip(*taken, strict=True))
        ratio = median(slow / fast for fast, slow in taken)
        slowest = quantiles([fast for fast, _ in taken], n=20)[-1]
        print(f"{'with the cache' if cached else 'without a cache'}, {len(taken)} pairs:")
        print(f"a new frame: {frame:.0f} ms, 95 of 100 within {slowest:.0f} ms, at most {SLOWEST}")
        print(f"from scratch: {whole:.0f} ms; {ratio:.1f} times the frame's, at least {TIMES}")
        within &= ratio >= TIMES and slowest < SLOWEST
    return within
