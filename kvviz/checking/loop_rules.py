"""The rules that name a mistake in a loop: each looks at the evidence and returns a cause or None.

A rule is called what its cause is called. The lists at the end say in which order they are tried.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kvviz.checking.cache_rules import find_cause
from kvviz.checking.causes import UNKNOWN, Cause, first_cause
from kvviz.checking.evidence import LoopEvidence, StepEvidence
from kvviz.checking.learner_code import own_lines

# -- a loop that returned nothing that can be compared ---------------------------------------------


def not_done_yet(loop: LoopEvidence):
    returned_nothing = loop.error is None and (loop.out is None or loop.out is ...)
    if isinstance(loop.error, NotImplementedError) or (returned_nothing and not loop.run):
        return Cause("not done yet", "not done yet: replace the ... with your own loop")


def raised(loop: LoopEvidence):
    """An error may only follow from a mistake before it: then that is the cause."""
    if (error := loop.error) is None:
        return None
    name = getattr(error, "cause", "raised")  # `record` knows some of its refusals by name
    earlier = first_wrong_step(loop) if name == "raised" else None
    says = f"your loop raised {type(error).__name__}: {error}"
    return earlier or Cause(name, says, lines=own_lines(error))


def model_never_called(loop: LoopEvidence):
    if not loop.run:
        return Cause("model never called", "your loop never called the model")


def prompt_changed(loop: LoopEvidence):
    if loop.prompt_changed:
        return Cause("prompt changed", "your loop changed the prompt it was given")


def wrong_result(loop: LoopEvidence):
    out = loop.out
    if not isinstance(out, torch.Tensor) or out.ndim != 2 or out.shape[0] != 1:
        got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        expected = tuple(loop.reference.ids.shape)
        says = f"your loop returned {got}, expected ids of shape {expected}"
        return Cause("wrong result", says)


# -- a step, given that the steps before it are right ----------------------------------------------


def stale_cache(step: StepEvidence):
    if step.step.index == 0 and step.held:
        says = f"the cache held {step.held} tokens before the prompt was fed"
        return step.cause("stale cache", says)


def wrong_position(step: StepEvidence):
    given, end = step.step.position_ids[0].tolist(), step.held + len(step.fed)
    if given == list(range(step.held, end)):
        return None
    ahead = given[-1] - (end - 1)
    name = "position not advanced" if ahead < 0 else "position miscounted"
    name = "position counted twice" if ahead == 1 else name
    token = step.label(step.fed[-1])
    return step.cause(name, f"{token!r} is at position {end - 1}, but was given {given[-1]}")


def prompt_not_fed_as_given(step: StepEvidence):
    if step.held == step.fed_before < step.loop.reference.n_prompt:
        pairs = enumerate(zip(step.fed, step.text[step.held :], strict=False), step.held)
        for position, (came, right) in pairs:
            if came != right:
                says = f"{step.label(came)!r} was fed at position {position}, but the prompt has "
                return step.cause("prompt not fed as given", f"{says}{step.label(right)!r} there")


def cache_never_read(step: StepEvidence):
    n = len(step.fed)
    if not step.held and step.fed == step.text[:n] and n > step.fed_before:
        says = f"{n} rows were computed, and nothing was read from a cache"
        return step.cause("cache never read", says)


def started_over(step: StepEvidence):
    if not step.held and step.fed == step.text[: len(step.fed)]:
        says = f"the text was started over with an empty cache, after {step.fed_before} tokens"
        return step.cause("started over", says)


def cache_not_passed_on(step: StepEvidence):
    if not step.held:
        fed = f"{len(step.fed)} token{'s' * (len(step.fed) > 1)}"
        return step.cause("cache not passed on", f"you fed {fed} and the cache held nothing")


def cache_went_back(step: StepEvidence):
    if step.held < step.fed_before:
        says = f"the cache held {step.held}, after {step.fed_before} tokens had been fed"
        return step.cause("cache went back", says)


def written_twice(step: StepEvidence):
    if step.held > step.fed_before:
        says = f"the cache held {step.held}, after only {step.fed_before} tokens had been fed"
        return step.cause("written twice", says)


def whole_sequence_fed(step: StepEvidence):
    n = len(step.fed)
    if n > 1 and step.fed[: step.fed_before] == step.text[: step.fed_before]:
        return step.cause("whole sequence fed", f"the cache held {step.held} and you fed {n}")


def prompts_last_token_fed(step: StepEvidence):
    if step.fed == step.text[step.loop.reference.n_prompt - 1 :][:1]:
        return step.cause("prompt's last token fed", f"{step.label(step.fed[0])!r} was fed again")


def token_fed_twice(step: StepEvidence):
    n, last = len(step.fed), step.text[step.fed_before - 1 :][:1]
    if n > 1 and step.fed[:1] == last:
        says = f"you fed {n} tokens, and the cache already held the first of them, "
        return step.cause("token fed twice", f"{says}{step.label(step.fed[0])!r}")


def several_tokens_fed(step: StepEvidence):
    if len(step.fed) > 1:
        return step.cause("several tokens fed", f"you fed {len(step.fed)} tokens, and one was new")


def token_not_chosen(step: StepEvidence):
    before, fed = step.loop.run[step.step.index - 1], step.fed[0]
    if (best := int(before.logits[0].argmax())) == fed:
        return None
    is_a_row = fed < before.fed  # as small as the number of a row: what another axis would give
    name = "argmax over the wrong axis" if is_a_row else "another token fed"
    says = f"you fed {step.label(fed)!r}, but {step.label(best)!r} had the highest score"
    return step.cause(name, says)


# -- a loop whose result differs -------------------------------------------------------------------


def first_wrong_step(loop: LoopEvidence):
    for step in loop.steps():
        rules = (wrong_position,) if step.is_next else FEEDING_RULES
        if cause := first_cause(rules, step):
            return cause


def prompt_missing(loop: LoopEvidence):
    new = loop.reference.ids[:, loop.reference.n_prompt :]
    if torch.equal(loop.out, new):
        return Cause("prompt missing", "your loop returned the new tokens without the prompt")


def wrong_number_of_tokens(loop: LoopEvidence):
    n_new, expected = loop.n_new, loop.reference.n_new
    if n_new >= 0 and n_new != expected:
        name = "too few tokens" if n_new < expected else "too many tokens"
        return Cause(name, f"your loop returned {n_new} new tokens, expected {expected}")


def another_token_returned(loop: LoopEvidence):
    position, right = loop.n_equal, loop.reference.ids[0]
    if loop.has_right_logits and position < min(loop.out.shape[1], len(right)):
        came, best = (loop.run.label(int(ids[position])) for ids in (loop.out[0], right))
        says = f"your loop returned {came!r} at position {position}, but {best!r} had the highest "
        return Cause("another token returned", f"{says}score")


def wrong_tensors(loop: LoopEvidence):
    return find_cause(loop.run, loop.reference)


def not_recognised(loop: LoopEvidence):
    return Cause(UNKNOWN, "something differs that this check does not recognise")


# -- a second call, after a first that was right ---------------------------------------------------


def stale_cache_again(loop: LoopEvidence):
    for step in loop.steps():
        cause = stale_cache(step)
        return cause and replace(cause, says=f"in a second call, {cause.says}")


def not_greedy(loop: LoopEvidence):
    """A step, from the prompt's own on, that chose another token than the best."""
    first = max(0, len(loop.run) - loop.reference.n_new)
    for before, step in zip(loop.run[first:], loop.run[first + 1 :], strict=False):
        best, fed = int(before.logits[0].argmax()), int(step.token_ids[0, 0])
        if step.held_before == before.visible and step.fed == 1 and fed != best:
            came, best = loop.run.label(fed), loop.run.label(best)
            says = f"step {step.index}: {came!r} was chosen, but {best!r} had the highest score"
            return Cause("not greedy", says)


# -- the order in which the rules are tried --------------------------------------------------------

RESULT_RULES = (not_done_yet, raised, model_never_called, prompt_changed, wrong_result)

FEEDING_RULES = (  # for a step that was not fed what comes next
    stale_cache,
    prompt_not_fed_as_given,
    cache_never_read,
    started_over,
    cache_not_passed_on,
    cache_went_back,
    written_twice,
    whole_sequence_fed,
    prompts_last_token_fed,
    token_fed_twice,
    several_tokens_fed,
    token_not_chosen,
)

LOOP_RULES = (
    first_wrong_step,
    prompt_missing,
    wrong_number_of_tokens,
    another_token_returned,
    wrong_tensors,
    not_recognised,
)

SECOND_CALL_RULES = (stale_cache_again, not_greedy)
