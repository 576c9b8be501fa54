"""The rule for a loop that checks several drafts in one pass, and goes on with the wrong one."""

from __future__ import annotations

from dataclasses import replace

from kvviz.checking.step_evidence import StepEvidence

SELECT = (
    "Each sequence of a batch has columns of its own in the cache. Keep those of the sequence "
    "whose tokens you return: cache.batch_select_indices(torch.tensor([best]))."
)


def another_sequence_kept(step: StepEvidence):
    """What is held and wrong was fed as a guess, in another sequence than the one that was right
    furthest."""
    at = step.entries.position
    writer = None if at is None else step.loop.find_writer(step, at)
    if writer is None or not writer.is_right or not writer.n_stray or at != writer.right_end:
        return None
    better = step.loop.steps[writer.index]
    if better.sequence == writer.sequence or better.right_end <= at:
        return None
    came, right = (repr(step.label(token)) for token in (writer.fed[writer.n_right], step.text[at]))
    says = f"the cache holds {came} at position {at}, from sequence {writer.sequence} of step "
    says += f"{writer.index}, but {right} had the highest score there, as sequence "
    says += f"{better.sequence} had guessed"
    return replace(step.cause("wrong guess kept", says), instead=SELECT)
