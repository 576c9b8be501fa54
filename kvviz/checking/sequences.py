"""Of a batch, the sequence that a check reads: in each pass the one that follows the right text
furthest.

So a loop may check several drafts in one pass and go on with the cache of the best.
"""

from __future__ import annotations

from dataclasses import replace

from kvviz.recording.step import Step


def cut_sequence(step: Step, sequence: int) -> Step:
    """The step with one sequence of its batch; its lineage is still that of all."""
    if step.token_ids.shape[0] == 1:
        return step
    at = slice(sequence, sequence + 1)
    kept = {
        name: {layer: x[at] for layer, x in layers.items()} for name, layers in step.kept.items()
    }
    return replace(
        step,
        token_ids=step.token_ids[at],
        position_ids=step.position_ids[at],
        pads=None if step.pads is None else step.pads[at],
        kept=kept,
    )


def choose_sequence(sequences: list):
    """Of one pass's evidence, a `StepEvidence` for each sequence: that with the most right tokens
    after a right past; of equals the first."""
    if len(sequences) == 1:
        return sequences[0]
    whole = (one for one in sequences if one.is_right and not one.n_stray)
    if (first := next(whole, None)) is not None:
        return first
    return max(sequences, key=lambda one: (one.is_right, not one.entries.trouble, one.n_right))
