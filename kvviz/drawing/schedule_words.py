"""A schedule in words: who is fed what in which step, and how long each waits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kvviz.drawing.schedule_facts import FED, STATES, Line, Schedule, Slot
from kvviz.words import pluralize


def write_title(schedule: Schedule) -> str:
    n, rows = len(schedule.lines), sum(schedule.totals)
    steps = pluralize(schedule.n_steps, "step")
    return f"{pluralize(n, 'request')}, {steps}, {pluralize(rows, 'row')}"


def describe_step(schedule: Schedule, step: int) -> str:
    """What each request does in one step."""
    parts = [_say(line, step) for line in schedule.lines if line.slots[step].state]
    return f"step {step}: {'; '.join(parts) or 'nothing'}"


def _say(line: Line, step: int) -> str:
    slot, name = line.slots[step], line.look.name
    if slot.state not in FED:
        return f"{name} {STATES[slot.state]}" if slot.state == "idle" else f"{name}: {slot.state}"
    words = f"{name} is fed {pluralize(slot.rows, 'row')}" + " again" * slot.again
    if not slot.gives_token:
        return words
    return f"{words}, {'first ' if step == line.tokens[0] else ''}token out"


def describe_schedule(schedule: Schedule, by: str) -> str:
    """The facts that are drawn, in one sentence; waits are counted in `by`, "step" or "row"."""
    costs = schedule.totals if by == "row" else [1] * schedule.n_steps
    parts = [f"{line.look.name}: {_describe_line(line, costs, by)}" for line in schedule.lines]
    totals = f"rows in each step: {_list_runs([str(n) for n in schedule.totals])}"
    return "; ".join([*parts, totals])


def _describe_line(line: Line, costs: Sequence[int], by: str) -> str:
    words = [_describe_slot(slot) for slot in line.slots[line.first : line.end + 1]]
    parts = [_list_runs(words) or "never there"]
    first, most = line.wait_first(costs), line.wait_most(costs)
    parts.append("no token" if first is None else f"first token after {pluralize(first, by)}")
    if most is not None:
        parts.append(f"at most {pluralize(most, by)} between tokens")
    return ", ".join(parts)


def _describe_slot(slot: Slot) -> str:
    if slot.state in FED:
        words = f"{slot.rows} again" if slot.again else str(slot.rows)
        return words + (f" and {slot.padding} thrown away" if slot.padding else "")
    if slot.state == "padding":
        return f"{slot.padding} thrown away"
    return slot.state or "gone"


def _list_runs(words: Sequence[str]) -> str:
    """`words` in a list; those that repeat are counted: `30, 1 (5 times), waiting (twice)`."""
    found = []
    for word, run in groupby(words):
        n = len([*run])
        times = "" if n == 1 else " (twice)" if n == 2 else f" ({n} times)"
        found.append(word + times)
    return ", ".join(found)
