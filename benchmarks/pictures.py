"""What the stepper's fast path saves: a new frame against the same picture drawn afresh, step by
step of 48 tokens, alternating; medians of paired ratios. Processor time: others do not count."""

import time
from statistics import median, quantiles

import kvviz as kv
from benchmarks.stepper import recorded

TOKENS, LAYER = 48, 13
# At least so many times faster (six, as a rule); milliseconds, 95 of 100 frames.
TIMES, SLOWEST = 4.5, 120


def spent(call) -> float:
    """Milliseconds of processor time."""
    start = time.thread_time()
    assert call()
    return 1000 * (time.thread_time() - start)


def afresh(walk) -> kv.Picture:
    """The picture that the stepper shows now, through matplotlib's own way to pixels."""
    return kv.Picture(walk._frames.figure(walk._frames._squares(*walk._key)), "")


def pairs(run) -> list[tuple[float, float]]:
    """(a new frame, drawn afresh) for each step, in turn first and second."""
    walk = kv.stepper(run, layer=LAYER)
    taken = []
    for step in range(len(run)):
        walk.step = step
        calls = {
            "frame": lambda: walk.frame,
            "afresh": lambda: afresh(walk).png(),
        }
        order = ("frame", "afresh") if step % 2 else ("afresh", "frame")
        took = {name: spent(calls[name]) for name in order}
        taken.append((took["frame"], took["afresh"]))
    return taken


def main() -> bool:
    within = True
    for cached in (True, False):
        run = recorded(43, cached=cached, layers=[LAYER])
        assert run[-1].columns == TOKENS
        taken = pairs(run)
        frame, whole = (median(each) for each in zip(*taken, strict=True))
        ratio = median(slow / fast for fast, slow in taken)
        slowest = quantiles([fast for fast, _ in taken], n=20)[-1]
        print(f"{'with the cache' if cached else 'without a cache'}, {len(taken)} pairs:")
        print(f"a new frame: {frame:.0f} ms, 95 of 100 within {slowest:.0f} ms, at most {SLOWEST}")
        print(f"drawn afresh: {whole:.0f} ms; {ratio:.1f} times the frame's, at least {TIMES}")
        within &= ratio >= TIMES and slowest < SLOWEST
    return within
