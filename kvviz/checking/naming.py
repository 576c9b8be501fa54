"""Name a mistake in a store by what it left in the tensors that attention saw.

One pass over the whole text, without a store, says what every layer should have seen. The steps of
a recording are held against it in the order the numbers flow: queries, then keys and values, then
outputs, layer by layer. Where the first of them differs, each mistake known here is tried: is that
what it would have left? What none of them explains has no name, only a place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvviz.checking.evidence import SEEN, UNKNOWN, Scene
from kvviz.recording.step import Step

__all__ = ["ADVICE", "SEEN", "Cause", "first", "named"]

ADVICE = {
    "stale store": "The store was emptied, and still held the text before: reset must empty every "
    "slot.",
    "store never read": "The result is right, and all of it was computed again: nothing came out "
    "of the store.",
    "position restarts": "That is its offset in this call. Its place counts on from the tokens "
    "held.",
    "position counted twice": "It was counted as held and as new. A row's place is what was held "
    "before it.",
    "counter left behind": "The store was emptied, and a counter still counts on from the text "
    "before. Rotary logits do not mind until the places run out; learned positions would. Read the "
    "place from the store's tensors.",
    "position miscounted": "A token's place is the number of tokens before it.",
    "key at place 0": "A key rotated for place 0 is a key not rotated at all: rotate it by its "
    "true place before it is stored.",
    "keys rotated twice": "It was right when it was stored, and has been rotated again since.",
    "keys and values swapped": "Compare the order in which the pair is written with the order it "
    "is read in.",
    "keys apart from their values": "A key and its value belong in one column: append both on the "
    "same side.",
    "new token not appended": "The step after does not have it either: the longer pair was "
    "dropped.",
    "own key left out": "It attended before it was appended. A token sees itself too.",
    "write never happens": "What attention hands back must be in the slot at the next call, and "
    "come out of it: look at `update`, and at `get`.",
    "one store for two caches": "What belongs to one cache is kept where all of them see it: make "
    "it anew in __init__, not in the class.",
    "write missing": "Something was not written, or was taken out again.",
    "written twice": "Attention hands back past and new together: `update` replaces, it never "
    "adds.",
    "write in the wrong place": "One write went over another. A new token goes behind all that are "
    "held.",
    "wrong order": "One query does not mind: a key carries its place, and a sum has no order. A "
    "chunk of several queries does, for its mask counts columns.",
    "one slot for all layers": "Keys differ from layer to layer: each layer has a slot of its own.",
    "another layer's slot": "Keys differ from layer to layer: each layer has a slot of its own.",
    "precision": "It was kept with fewer bits than it was computed with. That may be a bargain, "
    "and it is no longer the same cache.",
    "mask missing": "Several rows at once need the triangle: a row sees its own place and those "
    "before.",
    "mask from the top left": "The triangle belongs at the bottom right: the first new row sees "
    "all that is held, and itself.",
    "mask with a hole": "Every place that is held may be looked at: a mask covers held and new.",
    "window nobody asked for": "The oldest were dropped, or hidden. Every token is needed for as "
    "long as the text goes on.",
    UNKNOWN: "No mistake known here leaves that. What comes before it is right, to the gate.",
}


@dataclass(frozen=True)
class Cause:
    """What is wrong, the mistake's name ("not recognised" if it has none), and where it shows."""

    headline: str
    name: str
    step: int | None = None
    layer: int | None = None
    place: int | None = None

    @property
    def advice(self) -> str:
        """What to look at next."""
        return ADVICE[self.name]


def named(run, whole: Step, gate: float, **known) -> Cause | None:
    """`first`, looked for well above rounding before all that is above it."""
    return first(run, whole, 10 * gate, **known) or first(run, whole, gate, **known)


def first(run, whole: Step, gate: float, *, turn=None, earlier: int = 0) -> Cause | None:
    """The first thing in a recording that is not as in `whole`; None if all of it is.

    Args:
        run: steps that kept `SEEN`, in the order of the text.
        whole: one pass over that text, with no store, that kept the same.
        gate: largest gap allowed, over the largest number compared.
        turn: (x, places) -> x rotated, to tell for which place a key was rotated.
        earlier: tokens of the text that the store was emptied of before.
    """
    written = 0
    for step in run:
        if not torch.equal(step.token_ids[0], whole.token_ids[0, written : written + step.fed]):
            return None  # from here on it is another text
        for layer in step.layers:
            found = Scene(step, layer, written, whole, gate, turn, earlier).mistake()
            if found:
                name, says, place = found
                at = f"step {step.index}"
                if name == UNKNOWN or layer != step.layers[0]:
                    at += f", layer {layer}"
                return Cause(f"{at}: {says}", name, step.index, layer, place)
        written += step.fed
    return None
