"""The picture under a verdict: the step that went wrong beside the right one, or the whole run.

A check keeps what a picture needs: one layer of one step, or of the first few. It is drawn only
when somebody looks, and whatever prevents that leaves a verdict without a picture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from kvviz.checking.flaw_words import count_square, describe_flaws
from kvviz.checking.flaws import Flaws, choose_wrong_head, find_edge_flaws, find_flaws
from kvviz.checking.seen import Seen, choose_head, choose_layer
from kvviz.recording.square import Square
from kvviz.words import pluralize

FEW = 6  # steps of a filmstrip
LARGEST = 2**26  # numbers that are kept for a picture; 256 MiB


@dataclass(frozen=True)
class Mistake:
    """The step that went wrong, as attention saw it, beside the right one; a note says what of it
    is left out."""

    ours: Seen
    right: Seen
    gate: float
    note: str = ""

    def draw(self):
        """Both squares, with everything that differs marked; None if nothing does."""
        flaws = find_flaws(self.ours, self.right, self.gate)
        head = choose_wrong_head(self.ours, self.right, self.gate)
        ours, right = self.ours.draw_head(head), self.right.draw_head(head)
        return draw_flaws(ours, self._drop_columns(right), flaws, self.note)

    def _drop_columns(self, right: Square) -> Square:
        """The right square, with the columns that are out of the layer's window."""
        out = {j for j, state in enumerate(self.ours.blank.column_states) if state == "dropped"}
        out |= {*self.right.columns} - self.right.needed
        states = ("dropped" if j in out else s for j, s in enumerate(right.column_states))
        masked, at = right.masked.copy(), [j for j in out if j < right.n_columns]
        masked[:, at] = False
        weights = right.weights
        if weights is not None:
            weights = weights.copy()
            weights[:, at] = float("nan")
        return replace(right, column_states=tuple(states), masked=masked, weights=weights)


def draw_flaws(ours: Square, right: Square, flaws: Flaws, note: str = ""):
    """A learner's square beside the right one, what differs marked and in words; None if nothing
    does."""
    from kvviz.drawing.flaws import Side, draw_comparison

    if not flaws:
        return None
    clauses, sizes = describe_flaws(flaws, ours, right), [count_square(ours), count_square(right)]
    clauses += [note] if note else []
    where = f"step {ours.step}, layer {ours.layer}, head {ours.head}"
    where += f", sequence {ours.sequence}" if ours.sequence else ""
    sentence = f"yours: {where}: {sizes[0]}; {'; '.join(clauses)}. expected: {sizes[1]}"
    yours = Side(ours, "Yours", "; ".join([sizes[0], *clauses]), flaws)
    return draw_comparison(yours, Side(right, "Expected", sizes[1]), sentence)


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
        several = f" {len(squares)}" if len(squares) > 1 else ""
        which = f"the first{several} of {len(self.rows)} steps"
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
