"""What an exercise's check says: passed, not done yet, or what's wrong and where to look."""

from __future__ import annotations

import html
from dataclasses import dataclass

from kvviz.checking.learner_code import is_unwritten, own_frames

_MARK = {"passed": "✓", "not done yet": "·", "not right yet": "✗"}


@dataclass(frozen=True)
class Feedback:
    """What a check found: `state` is "passed", "not done yet" or "not right yet".

    >>> kv.exercises.positions(lambda p, n: 23_900).state
    'not right yet'
    """

    state: str
    message: str

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    def __repr__(self):
        return f"{_MARK[self.state]} {self.state}: {self.message}"

    def _repr_html_(self):
        message = html.escape(self.message).replace("\n", "<br>")
        return f"<p><strong>{_MARK[self.state]} {self.state}</strong>: {message}</p>"


NOT_DONE = Feedback("not done yet", "replace the ... with your own lines and return the result")


def accept(message: str) -> Feedback:
    """Feedback on a correct answer."""
    return Feedback("passed", message)


def reject(message: str) -> Feedback:
    """Feedback on a wrong answer: what was expected, what came back, and one thing to look at."""
    return Feedback("not right yet", message)


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
