"""The picture under a verdict: the step that went wrong beside the right one, or the whole run.

A check keeps what a picture needs: one layer of one step, or of the first few. It is drawn only
when somebody looks, and whatever prevents that leaves a verdict without a picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kvviz.checking.flaws import (
    choose_wrong_head,
    describe_flaws,
    find_edge_flaws,
    find_flaws,
)
from kvviz.checking.seen import Seen, choose_head, choose_layer
from kvviz.words import pluralize

FEW = 6  # steps of a filmstrip
LARGEST = 2**26  # numbers that are kept for a picture; 256 MiB


@dataclass(frozen=True)
class Mistake:
    """The step that went wrong, as attention saw it, beside the right one."""

    ours: Seen
    right: Seen
    gate: float

    def draw(self):
        """Both squares, with everything that differs marked; None if nothing does."""
        from kvviz.drawing.flaws import Side, draw_comparison

        flaws = find_flaws(self.ours, self.right, self.gate)
        if not flaws:
            return None
        head = choose_wrong_head(self.ours, self.right, self.gate)
        clauses, square = describe_flaws(flaws, self.ours, self.right), self.ours.blank
        sizes = [_count(seen) for seen in (self.ours, self.right)]
        where = f"step {square.step}, layer {square.layer}, head {head}"
        where += f", sequence {square.sequence}" if square.sequence else ""
        sentence = f"yours: {where}: {sizes[0]}; {'; '.join(clauses)}. expected: {sizes[1]}"
        yours = Side(self.ours.draw_head(head), "Yours", "; ".join([sizes[0], *clauses]), flaws)
        right = Side(self.right.draw_head(head), "Expected", sizes[1])
        return draw_comparison(yours, right, sentence)


@dataclass(frozen=True)
class Strip:
    """The first steps of a run, one layer of each; `rows` are those of all steps."""

    steps: tuple[Seen, ...]
    rows: tuple[int, ...]

    def draw(self):
        """The steps in a line, each with the rows that it computed."""
        from kvviz.drawing.flaws import draw_strip

        head, last = choose_head(self.steps[-1]), self.steps[-1].blank
        squares = [seen.draw_head(head) for seen in self.steps]
        rows = ", ".join(str(len(seen.rows)) for seen in self.steps)
        columns = ", ".join(str(square.n_visible) for square in squares)
        which = f"the first {len(squares)} of {len(self.rows)} steps"
        if len(squares) == len(self.rows):
            which = "the step" if len(squares) == 1 else f"all {len(squares)} steps"
        where = f"layer {last.layer}, head {head}"
        sentence = f"your run, {where}, {which}: rows computed {rows}; columns {columns}"
        return draw_strip(squares, sentence)


def keep_strip(steps, rows) -> Strip | None:
    """The first steps in the layer that shows most; `steps` are {layer: a function}, each of which
    cuts that layer out."""
    few = list(steps)[:FEW]
    if not few:
        return None
    shared = set.intersection(*(set(layers) for layers in few))
    last = {number: few[-1][number]() for number in sorted(shared)}
    layer = choose_layer(last)
    kept = (*(step[layer]() for step in few[:-1]), last[layer])
    return Strip(kept, tuple(rows)) if sum(map(_measure, kept)) <= LARGEST else None


def keep_mistake(pairs, gate: float) -> Mistake | None:
    """The first of the pairs (a learner's step, the right one) that differs."""
    for ours, right in pairs:
        if find_edge_flaws(ours, right, gate):
            return Mistake(ours, right, gate) if _measure(ours) <= LARGEST else None
    return None


def draw_safely(evidence):
    """The evidence as a picture; None if it can't be drawn."""
    try:
        return evidence.draw()
    except Exception:
        return None


def make_drawer(find, *arguments):
    """What gives the picture later; None if `find(*arguments)` finds nothing to draw, or fails."""
    try:
        evidence = find(*arguments)
    except Exception:
        return None
    return None if evidence is None else partial(draw_safely, evidence)


def describe_savings(rows, n_prompt: int, n_new: int) -> str:
    """The rows of a run beside those of a loop without a cache, in a sentence; "" if none."""
    computed, plain = sum(rows), sum(range(n_prompt, n_prompt + n_new))
    if computed >= plain:
        return ""
    says = f"{pluralize(computed, 'row')} instead of {plain}"
    if computed == n_prompt + n_new - 1:
        return f"{says}: each column of the big triangle was computed once"
    return f"{says}, which is what a loop without a cache computes"


def _measure(seen: Seen) -> int:
    parts = seen.query, seen.keys, seen.values, seen.output
    return sum(0 if x is None else x.numel() for x in parts)


def _count(seen: Seen) -> str:
    rows, n_keys = len(seen.rows), seen.keys.shape[1]
    n_values = seen.values.shape[1]
    columns = pluralize(n_keys, "column")
    if n_keys != n_values:
        columns = f"{pluralize(n_keys, 'key')} and {pluralize(n_values, 'value')}"
    return f"{columns}, {pluralize(rows, 'row')}"
