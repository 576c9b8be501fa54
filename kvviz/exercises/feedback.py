"""What an exercise's check says: passed, not done yet, or what's wrong and where to look."""

from __future__ import annotations

import functools
import html
from dataclasses import dataclass, replace

from kvviz.checking.learner_code import is_unwritten, own_frames
from kvviz.checking.verdict import Verdict

_MARK = {"passed": "✓", "not done yet": "·", "not right yet": "✗"}


@dataclass(frozen=True)
class Feedback:
    """What a check found: `state` is "passed", "not done yet" or "not right yet".

    `hints` are two, a small one and a larger one, and a notebook folds them. `picture` is None or
    shows the learner's own run.

    >>> kv.exercises.share_used(lambda p, n: 1 / n).state
    'not right yet'
    """

    state: str
    message: str
    hints: tuple[str, ...] = ()
    picture: object | None = None

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    def __repr__(self):
        return f"{_MARK[self.state]} {self.state}: {self.message}"

    def _repr_html_(self):
        message = html.escape(self.message).replace("\n", "<br>")
        said = f"<p><strong>{_MARK[self.state]} {self.state}</strong>: {message}</p>"
        picture = "" if self.picture is None else self.picture._repr_mimebundle_()[0]["text/html"]
        return said + _fold(self.hints) + picture


@dataclass(frozen=True)
class Hinted:
    """The verdict of `check` or `check_cache` on an exercise, with its hints folded below.

    >>> kv.exercises.cache(kv.KVCache).passed
    True
    """

    verdict: Verdict
    hints: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.verdict.passed

    @property
    def state(self) -> str:
        names = {mark: state for state, mark in _MARK.items()}
        return names[self.verdict.mark]

    @property
    def message(self) -> str:
        return self.verdict.headline

    def __repr__(self):
        return repr(self.verdict)

    def _repr_html_(self):
        return self.verdict._repr_html_() + _fold(self.hints)


def _fold(hints: tuple[str, ...]) -> str:
    """HTML of the hints, each folded; the larger ones only show inside the smaller one."""
    folded = ""
    for number in reversed(range(len(hints))):
        name = "Hint" if number == 0 else "A larger hint"
        text = html.escape(hints[number])
        folded = f"<details><summary>{name}</summary><p>{text}</p>{folded}</details>"
    return folded


NOT_DONE = Feedback("not done yet", "replace the ... with your own lines and return the result")


def accept(message: str, picture=None) -> Feedback:
    """Feedback on a correct answer."""
    return Feedback("passed", message, picture=picture)


def reject(message: str, picture=None) -> Feedback:
    """Feedback on a wrong answer: what was expected, what came back, and one thing to look at."""
    return Feedback("not right yet", message, picture=picture)


def with_hints(*hints: str):
    """Decorate a check: until the exercise is passed, its feedback carries these hints.

    >>> from kvviz.exercises.feedback import reject, with_hints
    >>> @with_hints("Count by hand first.", "Step k runs over p + k positions.")
    ... def check(function):
    ...     return reject("that counts one step too many")
    >>> check(None).hints[0]
    'Count by hand first.'
    """

    def decorate(check):
        @functools.wraps(check)
        def checked(*args, **kwargs) -> Feedback | Hinted:
            feedback = check(*args, **kwargs)
            if isinstance(feedback, Verdict):
                feedback = Hinted(feedback)
            return feedback if feedback.passed else replace(feedback, hints=hints)

        return checked

    return decorate


def run_answer(function, *arguments):
    """The learner's answer and None or, if there's no answer to judge, None and feedback."""
    if is_unwritten(function):
        return None, NOT_DONE
    try:
        answer = function(*arguments)
    except NotImplementedError:
        answer = None
    except Exception as error:
        frames = own_frames(error)
        where = f"line {frames[-1].lineno} of {frames[-1].name}" if frames else "the call"
        return None, reject(f"your function raised {type(error).__name__} in {where}: {error}")
    if answer is None or answer is Ellipsis:
        return None, NOT_DONE
    return answer, None
