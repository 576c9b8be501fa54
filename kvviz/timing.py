"""Compare how long things take, on a machine that is busy with other things too.

A single time says little: machines are shared, and the same call may take twice as long a second
later. So the things compared take turns in one run, and what is quoted is the median of the
ratios of neighbours, with the range in which it lies. Where that range holds both faster and
slower, the machine is too noisy to tell, and that is said instead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from kvviz.progress import bar

ENOUGH = 6  # of fewer rounds, all on one side happen by chance more often than once in 20


@dataclass(frozen=True)
class Comparison:
    """Seconds of each call, round by round, by name; the first name is what others compare to.

    Raises:
        ValueError: nothing was timed, not each as often as the others, or in no time at all; and
            later for a name that was not timed.
    """

    seconds: dict[str, Sequence[float]]

    def __post_init__(self):
        taken = list(self.seconds.values())
        if not taken or not taken[0] or len(set(map(len, taken))) > 1 or min(map(min, taken)) <= 0:
            raise ValueError(f"expected seconds of each call in every round, got {self.seconds}")

    @property
    def base(self) -> str:
        return next(iter(self.seconds))

    @property
    def rounds(self) -> int:
        return len(self.seconds[self.base])

    def median(self, name: str) -> float:
        """Median seconds of one of the things compared."""
        return statistics.median(self._of(name))

    def ratios(self, name: str, base: str | None = None) -> list[float]:
        """`name`'s time over the base's in the same round, from low to high."""
        pairs = zip(self._of(name), self._of(base or self.base), strict=True)
        return sorted(one / other for one, other in pairs)

    def ratio(self, name: str, base: str | None = None) -> float:
        """Median of `ratios`."""
        return statistics.median(self.ratios(name, base))

    def spread(self, name: str, base: str | None = None) -> tuple[float, float]:
        """Where the median ratio lies, 19 times out of 20, whatever the noise is like.

        Order statistics: of n ratios, as many are left out on each side as a fair coin thrown n
        times would leave (David and Nagaraja, Order Statistics, 2003, 7.1). Fewer than six are
        too few for that: the lowest and the highest.
        """
        ratios = self.ratios(name, base)
        out = _left_out(len(ratios))
        return ratios[out], ratios[-1 - out]

    def tells(self, name: str, base: str | None = None, *, factor: float = 1) -> str:
        """Whether `name` is "slower" or "faster" than `factor` times the base.

        Or else "too noisy to tell"; fewer than six rounds are "too few to tell".
        """
        if self.rounds < ENOUGH:
            return "too few to tell"
        low, high = self.spread(name, base)
        return "slower" if low > factor else "faster" if high < factor else "too noisy to tell"

    def _of(self, name: str) -> Sequence[float]:
        if name not in self.seconds:
            raise ValueError(f"{name!r} was not timed; these were: {', '.join(self.seconds)}")
        return self.seconds[name]

    def __repr__(self):
        width = max(map(len, self.seconds))
        lines = [self._line(name, width) for name in self.seconds]
        head = f"medians of {self.rounds} alternating rounds; ratios to {self.base!r}, by round"
        return "\n".join([head, *lines])

    def _line(self, name: str, width: int) -> str:
        line = f"{name:<{width}}  {self.median(name) * 1e3:9.2f} ms"
        if name == self.base:
            return line
        low, high = self.spread(name)
        return f"{line}  {self.ratio(name):7.3f} x ({low:.3f} to {high:.3f}): {self.tells(name)}"


def compare(
    calls: dict[str, Callable[[], object]],
    *,
    rounds: int = 9,
    warmup: int = 1,
    repeats: int = 1,
    progress: bool | None = None,
) -> Comparison:
    """Time several calls in turns; every other round runs backwards.

    Args:
        calls: name -> function without arguments; the first is the base of the ratios.
        rounds: how many times each is timed.
        warmup: rounds before, not counted: the first calls fill caches and build what is lazy.
        repeats: calls in a row that make one time, for calls too short for a clock; the time
            kept is that of one call.
        progress: show on stderr what takes longer than five seconds; by default unless
            KVVIZ_PROGRESS is 0.

    Raises:
        TypeError: not functions by their names, or numbers that are not whole.
        ValueError: fewer than two calls, no rounds, no repeats, or a negative warm-up.
    """
    _check(calls, rounds, warmup, repeats)
    if len(calls) < 2 or rounds < 1:
        raise ValueError(
            f"compare takes at least two calls and one round, and got {len(calls)} and {rounds}"
        )
    if warmup < 0 or repeats < 1:
        raise ValueError(f"expected warmup >= 0 and repeats >= 1, and got {warmup} and {repeats}")
    seconds = {name: [] for name in calls}
    looks = {"shown": progress, "desc": "timed", "unit": " rounds"}
    for number in bar(range(-warmup, rounds), **looks):
        for name in list(calls) if number % 2 else list(calls)[::-1]:
            spent = _time(calls[name], repeats)
            if number >= 0:
                seconds[name].append(spent)
    return Comparison({name: tuple(times) for name, times in seconds.items()})


def _check(calls, *numbers) -> None:
    if not isinstance(calls, Mapping):
        raise TypeError(f"expected {{name: function}}, and got {type(calls).__name__}")
    for name, call in calls.items():
        if not isinstance(name, str) or not callable(call):
            raise TypeError(
                f"expected a function by its name, f and not f(); got {name!r}: {call!r}"
            )
    for number in numbers:
        if not isinstance(number, int):
            raise TypeError(f"rounds, warmup, repeats: expected whole numbers, and got {number!r}")


def _time(call, repeats: int) -> float:
    """Seconds of one call, the mean of `repeats` in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _left_out(n: int) -> int:
    """How many of n to leave out on each side, so that the median stays inside 95 times of 100."""
    chances = [2 * sum(comb(n, i) for i in range(out + 1)) / 2**n for out in range(n // 2)]
    return max(sum(chance <= 0.05 for chance in chances) - 1, 0)
