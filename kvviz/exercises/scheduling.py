"""Notebook 12: a scheduler of ten lines, held against the engine's own schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kvviz.arguments import check_whole, describe
from kvviz.exercises.answers import to_number
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints
from kvviz.exercises.schedules import MISTAKES, serve_first_come


class _Turn(NamedTuple):
    """What a scheduler is given: tokens that each request has left to feed, and room for rows."""

    running: dict[str, int]
    waiting: dict[str, int]
    budget: int


_TURNS = [
    _Turn({}, {"sky": 13, "sea": 29}, 32),
    _Turn({"sky": 0, "sea": 10}, {"sun": 71}, 32),
    _Turn({"sky": 0, "sea": 0, "sun": 50}, {}, 32),
    _Turn({"sun": 5, "sky": 0}, {"sea": 4, "fog": 2}, 8),
    _Turn({"sky": 0, "sea": 0, "sun": 0}, {"fog": 9}, 2),
    _Turn({"sky": 0, "sun": 0}, {"fog": 3}, 2),
    _Turn({"sea": 6, "sky": 0}, {"sun": 2, "fog": 1}, 16),
    _Turn({}, {"sun": 20, "sky": 2}, 8),
    _Turn({"sky": 0}, {"sea": 7}, 8),
    _Turn({"sun": 20, "sky": 0}, {"sea": 4}, 8),
    _Turn({"sky": 0}, {}, 1),
    _Turn({"sea": 40, "sun": 2}, {"sky": 3}, 16),
    _Turn({}, {"sun": 5, "fog": 5, "sky": 5, "sea": 5}, 12),
    _Turn({}, {}, 8),
]


@with_hints(
    "A request that decodes needs one row, and somebody is waiting to read it. Give those out "
    "first, and see how many rows of the budget are left.",
    "What's left goes to prompts: first those that are half fed, then those that wait, in order. "
    "Each gets min(tokens left of its prompt, rows left in the budget), and the budget shrinks by "
    "as many rows.",
)
def scheduler(function, served=None, budget: int | None = None) -> Feedback:
    """Notebook 12: `schedule(running, waiting, budget)`, how many rows each request is fed next.

    `running` maps each request that has begun to the tokens of its prompt that are still to be fed:
    0 if it decodes. `waiting` does so for those that haven't begun. Both are in order of arrival.
    At most `budget` rows fit in one pass. The answer maps names to rows.

    Args:
        served: a recording of an engine with room for all; each of its passes is tried, too.
        budget: the `max_batch_tokens` of that engine.

    Raises:
        TypeError: `served` is no recording of an engine.
        ValueError: a recording without a budget that its passes fit in, or a budget without one.

    >>> kv.exercises.scheduler(lambda running, waiting, budget: {**running, **waiting})
    ✗ not right yet: with room for 32 rows, you feed 42: ...
    """
    if served is None and budget is not None:
        raise ValueError(f"budget: expected only with a recording, but got {describe(budget)}")
    turns = _TURNS if served is None else _TURNS + list_turns(served, budget)
    answers = []
    for turn in turns:
        answer, problem = run_answer(function, dict(turn.running), dict(turn.waiting), turn.budget)
        if problem:
            return problem
        if (rows := _to_rows(answer)) is None:
            return reject(f"expected rows by name, as {{'sky': 1}}, but got {describe(answer)}")
        if below := [name for name, n in rows.items() if n < 0]:
            return reject(f"{below[0]} gets {rows[below[0]]} rows in {_tell(turn)}")
        if strange := [name for name in rows if name not in {**turn.running, **turn.waiting}]:
            return reject(f"there's no request {describe(strange[0])} in {_tell(turn)}")
        answers.append(rows)
    right = [serve_first_come(*turn) for turn in turns]
    if answers == right:
        more = "" if served is None else f", and as the engine did in all its {len(served)} passes"
        return accept(f"right in {len(_TURNS)} situations{more}")
    return reject(_name_mistake(turns, answers, right))


def _to_rows(answer) -> dict[str, int] | None:
    """Rows by name, without those of no rows; None if it isn't that."""
    try:
        pairs = answer.items() if isinstance(answer, Mapping) else list(answer)
        rows = {name: to_number(n) for name, n in pairs}
    except (TypeError, ValueError):
        return None
    if not all(isinstance(name, str) and isinstance(n, int) for name, n in rows.items()):
        return None
    return {name: n for name, n in rows.items() if n}


def _tell(turn: _Turn) -> str:
    return f"schedule(running={turn.running}, waiting={turn.waiting}, budget={turn.budget})"


def _name_mistake(turns, answers, right) -> str:
    for turn, rows in zip(turns, answers, strict=True):
        if (fed := sum(rows.values())) > turn.budget:
            return (
                f"with room for {turn.budget} rows, you feed {fed}: what one request is fed, the "
                f"next can't use. {_tell(turn)}"
            )
    for way, hint in MISTAKES.items():
        if answers == [way(*turn) for turn in turns]:
            return hint
    turn, rows, other = next(
        each for each in zip(turns, answers, right, strict=True) if each[1] != each[2]
    )
    for name in other:
        if turn.running.get(name) == 0 and rows.get(name) != 1:
            says = f"{name} decodes, and is fed {rows.get(name, 0)} rows, not the one it wrote last"
            return f"{says}. {_tell(turn)}"
    left = turn.budget - sum(rows.values())
    if sum(rows.values()) < sum(other.values()):
        return f"{left} rows stay empty, and somebody could use them. {_tell(turn)}"
    return f"you feed {rows}. Who came first, and who is waiting to read? {_tell(turn)}"


# -- what an engine did ----------------------------------------------------------------------------


def list_turns(served, budget: int | None) -> list[_Turn]:
    """What the scheduler of a recorded engine saw before each pass.

    Raises:
        TypeError: `served` isn't a recording made by `record_serving`.
        ValueError: no budget, or one below the rows of a pass; or the engine ran out of pages, and
            then what it fed depends on them, too.
    """
    if not hasattr(served, "find_request") or isinstance(served, type):
        raise TypeError(f"served: expected a recording of an engine, but got {describe(served)}")
    most = max((step.rows for step in served), default=1)
    budget = check_whole("budget, the engine's max_batch_tokens", budget, least=most)
    turns, begun = [], {}
    for step in served:
        holding = {each.name: each for each in step.holding}
        names = [*holding, *step.waiting]
        prompts = {name: len(served.find_request(name, step).prompt_ids) for name in names}
        left = {n: max(0, prompts[n] - each.held_before) for n, each in holding.items()}
        begun = {name: left[name] for name in begun if name in holding}
        new = {name: left[name] for name in holding if name not in begun}
        turn = _Turn(begun, new | {name: prompts[name] for name in step.waiting}, budget)
        if serve_first_come(*turn) != {each.name: each.rows for each in step.requests}:
            says = "the engine fed other rows than its own rule says, as it does when pages run out"
            raise ValueError(f"served: in step {step.index} {says}: record it with more num_blocks")
        turns.append(turn)
        begun = begun | new
    return turns
