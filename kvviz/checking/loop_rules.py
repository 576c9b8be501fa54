"""The rules that name a mistake in a loop: each looks at the evidence and returns a cause or None.

A rule is called what its cause is called. The lists at the end say in which order they are tried.
"""

from __future__ import annotations

import inspect
from dataclasses import replace

import torch

from kvviz.checking.bonus_rules import (
    bonus_token_not_returned,
    bonus_token_returned_twice,
)
from kvviz.checking.cache_rules import find_cause
from kvviz.checking.causes import UNKNOWN, Cause, first_cause
from kvviz.checking.feeding_rules import (
    cache_never_read,
    find_feeding_cause,
    started_over,
)
from kvviz.checking.guess_rules import (
    cropped_too_many_equal_tokens,
    rows_of_wrong_guesses_returned,
)
from kvviz.checking.learner_code import describe_error, own_lines
from kvviz.checking.loop_evidence import LoopEvidence
from kvviz.checking.loop_work import find_growing, find_restart
from kvviz.checking.turn_rules import find_turn_cause, kept_cache_not_used, nothing_fed
from kvviz.checking.watchdog import TimeLimitReached
from kvviz.words import pluralize

# -- a loop that returned nothing that can be compared ---------------------------------------------


def not_done_yet(loop: LoopEvidence):
    returned_nothing = loop.error is None and (loop.out is None or loop.out is ...)
    if (
        isinstance(loop.error, NotImplementedError)
        and not loop.run
        or (returned_nothing and not loop.run)
    ):
        return Cause("not done yet", "not done yet: replace the ... with your own loop")


def yields(loop: LoopEvidence):
    """A generator or a coroutine: nothing of the loop has run, or not all."""
    if inspect.isgenerator(loop.out) or inspect.isasyncgen(loop.out):
        says = "your loop yields its tokens, and so it returned a generator"
        return Cause("yields", f"{says}: return them instead")
    if inspect.iscoroutine(loop.out):
        loop.out.close()
        return Cause("yields", "your loop is an async function, and so it returned a coroutine")


def endless_loop(loop: LoopEvidence):
    """Only the check itself raises this. A text that lacks a token in each pass may never grow."""
    if isinstance(loop.error, TimeLimitReached):
        says = str(loop.error) or "it did not end within its time"
        calls = f"it called the model {pluralize(loop.watch.calls, 'time')}"
        cause = first_wrong_step(loop)
        if cause and cause.name in ("bonus token missing", "fed twice", "token fed twice"):
            return replace(cause, says=f"{cause.says}; your loop was stopped: {says}; {calls}")
        return Cause("endless loop", f"your loop was stopped: {says}; {calls}")


COPY_WITHOUT_GRADIENTS = (
    "A cache whose tensors could still give gradients can't be copied: write @torch.no_grad() over "
    "your loop."
)


def raised(loop: LoopEvidence):
    """An error may only follow from a mistake before it: then that is the cause."""
    if (error := loop.error) is None:
        return None
    lines, then = own_lines(error), f"your loop raised {describe_error(error)}"
    if "deepcopy protocol" in then:
        lines = f"{lines}\n{COPY_WITHOUT_GRADIENTS}"
    name = getattr(error, "cause", "raised")  # `record` knows some of its refusals by name
    earlier = first_cause(EARLIER_RULES, loop) if name == "raised" and loop.run else None
    if earlier:
        then = f"your loop then raised {describe_error(error)}"
        return replace(earlier, says=f"{earlier.says}; {then}")
    return Cause(name, then, lines=lines)


def model_never_called(loop: LoopEvidence):
    if not loop.run:
        return Cause("model never called", "your loop never called the model")


def prompt_changed(loop: LoopEvidence):
    if loop.prompt_changed:
        return Cause("prompt changed", "your loop changed the prompt it was given")


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


def wrong_result(loop: LoopEvidence):
    """Anything but whole numbers of shape (1, any number)."""
    out, expected = loop.out, tuple(loop.reference.ids.shape)
    if loop.has_ids:
        return None
    got = "nothing" if out is None else type(out).__name__
    if isinstance(out, torch.Tensor):
        got = tuple(out.shape)
        if out.ndim == 2 and out.shape[0] == 1:
            says = f"your loop returned {out.dtype} on {out.device.type}, expected whole numbers"
            return Cause("wrong result", says)
    elif isinstance(out, list | tuple):
        got = f"a {got} of {pluralize(len(out), 'item')}"
    elif hasattr(out, "sequences"):
        got = f"{got}, whose .sequences are the ids"
    return Cause("wrong result", f"your loop returned {got}, expected ids of shape {expected}")


# -- a loop whose result differs -------------------------------------------------------------------


def first_wrong_step(loop: LoopEvidence):
    step = loop.culprit
    return step and (find_turn_cause(step) or find_feeding_cause(step))


def wrong_step_before(loop: LoopEvidence):
    """Before an error. What the last step was fed may have been about to leave the cache again."""
    return None if loop.had_no_chance else first_wrong_step(loop)


def never_read_or_started_over(loop: LoopEvidence):
    """Right steps, but the text was begun again although a pass over it was there."""
    if step := find_restart(loop):
        return first_cause((cache_never_read, started_over), step)


def most_fed_again(loop: LoopEvidence):
    """Taken out of the cache and fed again, a part of the text that grows with it."""
    if found := find_growing(loop):
        held, again = found
        says = f"{again} of {pluralize(held, 'token')} were taken out of the cache and fed again"
        return Cause("most fed again", f"in the last step {says}")


def went_on(loop: LoopEvidence):
    """All that was fed is right, and it is more than the result needs. Guesses don't count."""
    needed, n_prompt = loop.reference.ids.shape[1] - 1, loop.reference.n_prompt
    ends = (step.end if step.held < n_prompt else step.held + 1 for step in loop.steps)
    fed = max(ends, default=0)
    if loop.culprit is None and fed > needed + 1:
        says = f"your loop fed {pluralize(fed, 'token')} and went on, {needed} were needed"
        return Cause("too many tokens", says)


def prompt_missing(loop: LoopEvidence):
    new = loop.reference.ids[:, loop.reference.n_prompt :].cpu()
    length = loop.out.shape[1]
    if length and torch.equal(loop.out.cpu(), new[:, :length]):
        return Cause("prompt missing", "your loop returned the new tokens without the prompt")


def wrong_number_of_tokens(loop: LoopEvidence):
    """As many as were asked for are right, or as many as it returned."""
    n_new, expected = loop.n_new, loop.reference.n_new
    if n_new < 0:
        got = pluralize(loop.out.shape[1], "token")
        says = f"your loop returned {got}, fewer than the prompt has"
        return Cause("wrong result", says)
    if n_new != expected:
        name = "too few tokens" if n_new < expected else "too many tokens"
        return Cause(
            name, f"your loop returned {pluralize(n_new, 'new token')}, expected {expected}"
        )


def another_token_returned(loop: LoopEvidence):
    """The right token was fed there, or follows the last that was fed, and another returned."""
    at, right, rows = loop.n_equal, loop.reference.ids[0], set()
    for step in loop.right_steps:
        rows |= {*step.right_rows}
    if at >= min(loop.out.shape[1], len(right)) or not {at, at - 1} & rows:
        return None
    came, best = (loop.run.label(int(ids[at])) for ids in (loop.out[0], right))
    why = "had the highest score" if at >= loop.reference.n_prompt else "is the prompt's"
    says = f"your loop returned {came!r} at position {at}, but {best!r} {why}"
    return Cause("another token returned", says)


def wrong_tensors(loop: LoopEvidence):
    return find_cause(loop.run, loop.reference)


def not_recognised(loop: LoopEvidence):
    """The place is that of the first number that differs, or else of the first token."""
    if (step := loop.culprit) and step.entries.trouble:
        layer, position = step.entries.layer, step.entries.position
        where = f"step {step.index}, layer {layer}"
        says = f"{where}: the key or the value of position {position} isn't the right one"
        return Cause(UNKNOWN, says, step.index, layer, position)
    says = "something differs that this check does not recognise"
    if loop.n_equal < min(loop.out.shape[1], loop.reference.ids.shape[1]):
        says += f"; your text is another one from position {loop.n_equal} on"
    return Cause(UNKNOWN, says)


# -- the order in which the rules are tried --------------------------------------------------------

RESULT_RULES = (
    not_done_yet,
    endless_loop,
    nothing_fed,
    raised,
    yields,
    model_never_called,
    prompt_changed,
    padded_prompt,
    wrong_result,
)

EARLIER_RULES = (padded_prompt, wrong_step_before, wrong_tensors, went_on)

LOOP_RULES = (
    first_wrong_step,
    never_read_or_started_over,
    most_fed_again,
    kept_cache_not_used,
    prompt_missing,
    bonus_token_not_returned,
    bonus_token_returned_twice,
    wrong_number_of_tokens,
    rows_of_wrong_guesses_returned,
    cropped_too_many_equal_tokens,
    another_token_returned,
    wrong_tensors,
    not_recognised,
)
