"""Compare how long things take, on a machine that is busy with other things too.

A single time says little: machines are shared, and the same call may take twice as long a second
later. So the things compared take turns in one run, and what is quoted is the median of the
ratios of neighbours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """Seconds of each call, round by round, by name; the first name is what others compare to."""

    seconds: dict[str, tuple[float, ...]]

    @property
    def base(self) -> str:
        return next(iter(self.seconds))

    def median(self, name: str) -> float:
        """Median seconds of one of the things compared."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str) -> float:
        """Median over the rounds of `name`'s time over the base's in the same round."""
        pairs = zip(self.seconds[name], self.seconds[self.base], strict=True)
        return statistics.median(one / other for one, other in pairs)

    def __repr__(self):
        width = max(map(len, self.seconds))
        lines = [
            f"{name:<{width}}  {self.median(name) * 1e3:9.2f} ms  {self.ratio(name):7.3f} x"
            for name in self.seconds
        ]
        rounds = len(self.seconds[self.base])
        head = f"medians of {rounds} alternating rounds; ratios to {self.base!r}, round by round"
        return "\n".join([head, *lines])


def compare(calls: dict[str, Callable[[], object]], *, rounds: int = 9) -> Comparison:
    """Time several calls in turns, after one unmeasured round; every other round runs backwards.

    Args:
        calls: name -> function without arguments; the first is the base of the ratios.
        rounds: how many times each is timed.

    Raises:
        ValueError: fewer than two calls, or no rounds.
    """
    if len(calls) < 2 or rounds < 1:
        raise ValueError(
            f"compare takes at least two calls and one round, and got {len(calls)} and {rounds}"
        )
    seconds = {name: [] for name in calls}
    for number in range(-1, rounds):
        order = list(calls) if number % 2 else list(calls)[::-1]
        for name in order:
            start = time.perf_counter()
            calls[name]()
            if number >= 0:
                seconds[name].append(time.perf_counter() - start)
    return Comparison({name: tuple(times) for name, times in seconds.items()})
