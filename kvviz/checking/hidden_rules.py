"""Loops whose mask hides tokens: right or wrong, their columns stand elsewhere than the text's."""

from __future__ import annotations

from kvviz.checking.causes import Cause
from kvviz.checking.loop_evidence import LoopEvidence
from kvviz.words import pluralize


def padded_prompt(loop: LoopEvidence):
    """The prompt after padding that its mask hides: right or wrong, it can't be compared."""
    for step in loop.steps[:1]:
        pads = step.step.pads
        if pads is None or not pads[0].any() or step.held:
            continue
        rest = [token for token, pad in zip(step.fed, pads[0].tolist(), strict=False) if not pad]
        if rest == step.text[: len(rest)]:
            n = pluralize(int(pads[0].sum()), "padding token")
            says = f"your loop fed {n} before the prompt, and padded prompts aren't checked"
            return Cause("padded prompt", says)


def hidden_tokens(loop: LoopEvidence):
    """Tokens in the cache that a mask hides, such as wrong guesses, instead of taking them out.

    What the mask leaves is the right text, so the loop can be right.
    """
    for step in loop.steps:
        pads = step.step.pads
        if pads is None or not (hidden := int(pads[0, : step.held].sum())):
            continue
        columns = zip(step.step.tokens()[: step.held], pads[0].tolist(), strict=False)
        seen = [token for token, is_hidden in columns if not is_hidden]
        if seen == step.text[: len(seen)]:
            tokens = pluralize(hidden, "token")
            says = f"your mask hides {tokens} that the cache holds, and that isn't checked"
            return step.cause("hidden tokens", says)
