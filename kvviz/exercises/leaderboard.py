"""A leaderboard of a learner's own attempts at an exercise that has a score.

A check adds each attempt and shows where it stands, in two lines:

    BOARD.add(function, loss, checks={"needle": found})
    return BOARD.show(accept(message))
"""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from kvviz.arguments import check_whole, describe
from kvviz.exercises.answers import to_bool, to_number
from kvviz.exercises.feedback import Feedback
from kvviz.exercises.standing import Attempt, Standing

LONGEST = 24  # characters of a name
BETTER = ("lower", "higher")


@dataclass(frozen=True)
class Scored(Feedback):
    """Feedback with the leaderboard below it, as it was then."""

    standing: Standing | None = field(default=None, repr=False)

    def __repr__(self):
        said = super().__repr__()
        if self.standing is None or not self.standing.rows:
            return said
        return f"{said}\n{self.standing.sentence}\n{self.standing!r}"

    def _repr_html_(self):
        said, standing = super()._repr_html_(), self.standing
        if standing is None or not standing.rows:
            return said
        picture = standing.draw()
        below = "" if picture is None else picture._repr_mimebundle_()[0]["text/html"]
        sentence = f"<p>{html.escape(standing.sentence)}</p>"
        return said + sentence + standing._repr_html_() + below


class Leaderboard:
    """The learner's attempts in this kernel, for an exercise that has a score.

    Args:
        score: what is scored, such as "loss".
        better: "lower" or "higher".
        digits: how many decimals are shown and compared.
        to_beat: {name: score} of what the learner can beat.

    Raises:
        ValueError: `better` is neither, or a score to beat is no number.

    >>> from kvviz.exercises.leaderboard import Leaderboard
    >>> board = Leaderboard("loss", digits=2, to_beat={"window": 4.24})
    >>> attempt = board.add("drop the oldest", 4.239)
    >>> attempt = board.add("keep the first", 3.491, checks={"needle": True})
    >>> board
       attempt             loss (lower is better)  needle
    1  #2 keep the first                     3.49  yes     newest
    2  #1 drop the oldest                    4.24
       window                                4.24          to beat
    """

    def __init__(
        self,
        score: str,
        *,
        better: str = "lower",
        digits: int = 2,
        to_beat: Mapping[str, float] | None = None,
    ):
        if better not in BETTER:
            raise ValueError(f"better: expected 'lower' or 'higher', but got {describe(better)}")
        self.score, self.better, self.digits = score, better, check_whole("digits", digits, 0)
        self.to_beat = tuple(
            (name, self._round(f"to_beat, {name!r}", level))
            for name, level in (to_beat or {}).items()
        )
        self.reset()

    def reset(self) -> None:
        """Forget every attempt.

        >>> board = Leaderboard("loss")
        >>> attempt = board.add("a", 1)
        >>> board.reset()
        >>> board
        no scored attempt yet
        """
        self._attempts: list[Attempt] = []
        self._newest: int | None = None

    def add(
        self, who, score, *, checks: Mapping[str, bool] | None = None, remark: str = ""
    ) -> Attempt | None:
        """Add an attempt, and mark it as the newest; None if it has no score.

        The same name with the same score and checks is the same attempt: it is marked again.

        Args:
            who: the function or class that was handed in, or a name.
            score: a number; None or one that isn't finite is no score.
            checks: {name: passed} of a few questions that are answered with yes or no.
            remark: a few words about it.

        Raises:
            ValueError: the score is no number, or a check is neither True nor False.

        >>> board = Leaderboard("loss")
        >>> board.add(max, 3.14159).name, board.add(max, float("nan"))
        ('max', None)
        """
        if score is None or not isfinite(number := self._round("score", score)):
            return None
        passed = tuple((name, _read_check(name, each)) for name, each in (checks or {}).items())
        name = name_of(who)
        known = [a for a in self._attempts if (a.name, a.score, a.checks) == (name, number, passed)]
        if known:
            self._newest = known[0].number
            return known[0]
        attempt = Attempt(len(self._attempts) + 1, name, number, passed, remark)
        self._attempts.append(attempt)
        self._newest = attempt.number
        return attempt

    def _round(self, what: str, score) -> float:
        number = to_number(score)
        if number is None:
            raise ValueError(f"{what}: expected a number, but got {describe(score)}")
        return round(float(number), self.digits) if isfinite(number) else float(number)

    @property
    def standing(self) -> Standing:
        """The leaderboard as it is now, which later attempts don't change."""
        sign = 1 if self.better == "lower" else -1
        rows = sorted(self._attempts, key=lambda each: (sign * each.score, each.number))
        return Standing(
            self.score, self.better, self.digits, self.to_beat, tuple(rows), self._newest
        )

    @property
    def best(self) -> Attempt | None:
        """The best attempt; None if there is none."""
        return next(iter(self.standing.rows), None)

    def show(self, feedback: Feedback) -> Scored:
        """`feedback` with the leaderboard below it: the table, and a picture of it.

        >>> from kvviz.exercises.feedback import accept
        >>> board = Leaderboard("loss")
        >>> attempt = board.add("mine", 3.5)
        >>> board.show(accept("within the budget"))
        ✓ passed: within the budget
        loss 3.50, your first attempt
           attempt  loss (lower is better)
        1  #1 mine                    3.50  newest
        """
        kept = feedback.state, feedback.message, feedback.hints, feedback.picture
        return Scored(*kept, standing=self.standing)

    def __len__(self):
        return len(self._attempts)

    def __repr__(self):
        return repr(self.standing)

    def _repr_html_(self):
        return self.standing._repr_html_()


def name_of(who) -> str:
    """The name of a function, a class or what made it; a name stays as it is.

    >>> name_of(kv.KVCache), name_of(lambda: 3), name_of("my window")
    ('KVCache', 'lambda', 'my window')
    """
    while isinstance(who, functools.partial):
        who = who.func
    name = who if isinstance(who, str) else getattr(who, "__name__", type(who).__name__)
    name = " ".join(name.strip("<>").split()) or "unnamed"
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _read_check(name: str, passed) -> bool:
    if (said := to_bool(passed)) is None:
        raise ValueError(f"checks, {name!r}: expected True or False, but got {describe(passed)}")
    return said
