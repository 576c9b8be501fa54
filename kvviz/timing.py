"""Compare how long calls take on a machine that is busy with other things too.

A single time says little: machines are shared, and the same call may take twice as long a second
later. So the calls take turns in one run, and you get the median of the ratios round by round, with
the range it lies in. If that range includes both faster and slower, the machine is too noisy to
tell, and the report says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from kvviz.arguments import check_flag, check_number, check_whole, describe
from kvviz.progress import bar

MOST = 1_000_000  # rounds, or calls in a row
ENOUGH = 6  # with fewer rounds, chance puts them all on one side more often than once in 20


@dataclass(frozen=True)
class Comparison:
    """Seconds of each call, by name and round; the others are compared to the first name.

    Raises:
        ValueError: nothing was timed, some calls were timed more often than others, or a time
            isn't a number above 0.

    >>> kv.timing.Comparison({"plain": (2.0,) * 6, "cached": (1.0,) * 6})
    medians of 6 alternating rounds; ratios to 'plain', round by round
    plain     2000.00 ms
    cached    1000.00 ms    0.500 x (0.500 to 0.500): faster
    """

    seconds: dict[str, Sequence[float]]

    def __post_init__(self):
        expected = "expected seconds of each call in every round"
        if not isinstance(self.seconds, Mapping):
            raise ValueError(f"{expected}, got {describe(self.seconds)}")
        taken = list(self.seconds.values())
        listed = all(isinstance(times, list | tuple) for times in taken)
        names = all(isinstance(name, str) for name in self.seconds)
        if not names or not listed or not taken or not taken[0] or len({*map(len, taken)}) > 1:
            raise ValueError(f"{expected}, got {describe(self.seconds)}")
        for name, times in self.seconds.items():
            for each in times:
                check_number(f"seconds of {name!r}", each, above=0)

    @property
    def base(self) -> str:
        return next(iter(self.seconds))

    @property
    def rounds(self) -> int:
        return len(self.seconds[self.base])

    def median(self, name: str) -> float:
        """Median seconds of one of the calls.

        Raises:
            ValueError: this name wasn't timed.

        >>> kv.timing.Comparison({"plain": (2.0, 4.0, 3.0)}).median("plain")
        3.0
        """
        return statistics.median(self._times(name))

    def ratios(self, name: str, base: str | None = None) -> list[float]:
        """`name`'s time divided by the base's in the same round, from low to high.

        Raises:
            ValueError: one of the names wasn't timed.

        >>> kv.timing.Comparison({"a": (2.0, 4.0), "b": (8.0, 8.0)}).ratios("b")
        [2.0, 4.0]
        """
        base = self.base if base is None else base
        pairs = zip(self._times(name), self._times(base), strict=True)
        return sorted(one / other for one, other in pairs)

    def ratio(self, name: str, base: str | None = None) -> float:
        """The median of `ratios`.

        Raises:
            ValueError: as `ratios`.

        >>> kv.timing.Comparison({"a": (2.0, 4.0), "b": (8.0, 8.0)}).ratio("b")
        3.0
        """
        return statistics.median(self.ratios(name, base))

    def spread(self, name: str, base: str | None = None) -> tuple[float, float]:
        """The range the median ratio lies in, 19 times out of 20, whatever the noise is like.

        It comes from order statistics: out of n ratios, the number left out on each side follows
        from n tosses of a fair coin (David and Nagaraja, Order Statistics, 2003, 7.1). Fewer than
        six are too few for that, so the range goes from the lowest to the highest.

        Raises:
            ValueError: as `ratios`.

        >>> kv.timing.Comparison({"a": (1.0,) * 4, "b": (2.0, 3.0, 2.0, 4.0)}).spread("b")
        (2.0, 4.0)
        """
        ratios = self.ratios(name, base)
        cut = _trim(len(ratios))
        return ratios[cut], ratios[-1 - cut]

    def tells(self, name: str, base: str | None = None, *, factor: float = 1) -> str:
        """Whether `name` is "slower" or "faster" than `factor` times the base.

        Otherwise "too noisy to tell", or "too few to tell" for fewer than six rounds.

        Raises:
            ValueError: as `ratios`, or `factor` isn't a number above 0.

        >>> kv.timing.Comparison({"a": (1.0,) * 6, "b": (3.0,) * 6}).tells("b", factor=2)
        'slower'
        """
        low, high = self.spread(name, base)
        factor = check_number("factor", factor, above=0)
        if self.rounds < ENOUGH:
            return "too few to tell"
        return "slower" if low > factor else "faster" if high < factor else "too noisy to tell"

    def _times(self, name: str) -> Sequence[float]:
        if not isinstance(name, str) or name not in self.seconds:
            raise ValueError(
                f"expected a name that was timed ({', '.join(self.seconds)}), got {describe(name)}"
            )
        return self.seconds[name]

    def __repr__(self):
        width = max(map(len, self.seconds))
        lines = [self._line(name, width) for name in self.seconds]
        head = (
            f"medians of {self.rounds} alternating rounds; ratios to {self.base!r}, round by round"
        )
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
        calls: name -> function without arguments; ratios are to the first.
        rounds: how many times each is timed.
        warmup: rounds that aren't counted; first calls fill caches and do work put off until then.
        repeats: how many calls in a row are timed together, if one is too short for the clock;
            the time kept is that of a single call.
        progress: show a bar on stderr if it takes longer than five seconds; by default yes, unless
            KVVIZ_PROGRESS is 0.

    Raises:
        TypeError: `calls` doesn't map names to functions.
        ValueError: fewer than two calls, or rounds, repeats or a warm-up that aren't whole numbers
            up to a million.

    >>> loops = {"sum": lambda: sum(range(9)), "list": lambda: list(range(9))}
    >>> kv.timing.compare(loops, rounds=3).rounds
    3
    """
    _check(calls)
    rounds, warmup = check_whole("rounds", rounds, 1, MOST), check_whole("warmup", warmup, 0, MOST)
    repeats = check_whole("repeats", repeats, 1, MOST)
    progress = None if progress is None else check_flag("progress", progress)
    seconds = {name: [] for name in calls}
    numbers = range(-warmup, rounds)
    for number in bar(numbers, shown=progress, desc="timing", unit=" rounds"):
        for name in list(calls) if number % 2 else list(calls)[::-1]:
            spent = _time(calls[name], repeats)
            if number >= 0:
                seconds[name].append(spent)
    return Comparison({name: tuple(times) for name, times in seconds.items()})


def _check(calls) -> None:
    if not isinstance(calls, Mapping):
        raise TypeError(f"expected {{name: function}}, got {describe(calls)}")
    for name, call in calls.items():
        if not isinstance(name, str) or not callable(call):
            came = f"{describe(name)}: {describe(call)}"
            raise TypeError(f"expected a name and a function, f and not f(), got {came}")
    if len(calls) < 2:
        raise ValueError(f"expected at least two calls to compare, got {len(calls)}")


def _time(call, repeats: int) -> float:
    """Seconds of one call, averaged over `repeats` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _trim(n: int) -> int:
    """How many of n ratios to leave out on each side and still keep the median 95 times in 100."""
    chances = [2 * sum(comb(n, i) for i in range(cut + 1)) / 2**n for cut in range(n // 2)]
    return max(sum(chance <= 0.05 for chance in chances) - 1, 0)
