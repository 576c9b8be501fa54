"""What an exercise's check says: done, not done yet, or what is wrong and where to look."""

from __future__ import annotations

import html
from dataclasses import dataclass

from kvviz.checking.learner_code import is_unwritten, own_frames

_MARK = {"passed": "✓", "not done yet": "·", "not right yet": "✗"}


@dataclass(frozen=True)
class Feedback:
    """What a check found: `state` is "passed", "not done yet" or "not right yet"."""

    state: str
    says: str

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    def __repr__(self):
        return f"{_MARK[self.state]} {self.state}: {self.says}"

    def _repr_html_(self):
        says = html.escape(self.says).replace("\n", "<br>")
        return f"<p><strong>{_MARK[self.state]} {self.state}</strong>: {says}</p>"


NOT_DONE = Feedback("not done yet", "replace the ... with your own lines, and return the result")


def passed(says):
    return Feedback("passed", says)


def wrong(says):
    return Feedback("not right yet", says)


def tried(function, *arguments):
    """The learner's answer, and feedback instead where there is none to judge."""
    if is_unwritten(function):
        return None, NOT_DONE
    try:
        answer = function(*arguments)
    except NotImplementedError:
        answer = None
    except Exception as error:
        frames = own_frames(error)
        where = f"line {frames[-1].lineno} of {frames[-1].name}" if frames else "the call"
        return None, wrong(f"your function raised {type(error).__name__} in {where}: {error}")
    if answer is None or answer is Ellipsis:
        return None, NOT_DONE
    return answer, None
