"""Check a cached loop against the uncached one: tokens, logits, keys and values, and the work.

Both are recorded, and only the recording is judged, never a name or the source: a mistake is named
by what it left there.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import torch

from kvviz.arguments import check_whole
from kvviz.checking.causes import UNKNOWN, Cause, first_cause
from kvviz.checking.compare import SEEN, Reference, compare_tokens, compare_work
from kvviz.checking.kept import Kept, find_kept
from kvviz.checking.learner_code import attempt, describe_error
from kvviz.checking.loop_evidence import LoopEvidence, read_ids
from kvviz.checking.loop_inputs import (
    MAX_BYTES,
    check_loop,
    check_model,
    check_prompt,
    check_rotation,
    in_float32,
)
from kvviz.checking.loop_picture import find_loop_picture
from kvviz.checking.loop_reference import LEAST_NEW, second_prompt, uncached_reference
from kvviz.checking.loop_rules import LOOP_RULES, RESULT_RULES, most_fed_again
from kvviz.checking.loop_rules import never_read_or_started_over as restarted
from kvviz.checking.loop_watch import Watch
from kvviz.checking.loop_work import compare_rows, describe_pace, list_remarks
from kvviz.checking.turn import join_verdicts
from kvviz.checking.turn_rules import kept_cache_not_used
from kvviz.checking.verdict import Finding, Verdict
from kvviz.checking.verdict_picture import describe_savings, make_drawer
from kvviz.recording.recorder import record
from kvviz.recording.steps import check_tokenizer
from kvviz.words import pluralize

MOST_NEW = 1000  # the plain loop computes every row again for each
SECONDS = 20  # that one call of a loop may take, or ten times the plain loop


def check(loop, model, ids, n_new: int, *, then=None, tokenizer=None) -> Verdict:
    """Check `loop(model, ids, n)`, a greedy loop that keeps keys and values, against a plain one.

    Your loop runs twice, the second time on another and longer prompt, to see whether anything is
    left over; or, with `then`, on the text of a chat's next turn, where it should go on from the
    cache it kept: what both texts begin with stays, the rest is cropped, and only what is new is
    fed. Each run is stopped after 20 seconds, or ten times what the plain loop took if that
    is more. A model in bfloat16 or float16 computes in float32 meanwhile, so that rounding hides
    nothing.

    Args:
        loop: takes ids (1, p) and returns the prompt and n new tokens, (1, p + n), as a tensor, an
            array or a list, also without the first axis. It may stop early at an end-of-text token,
            feed tokens in chunks, guess and crop, check several drafts in a batch, or copy caches.
        model: any causal decoder of transformers that `record` takes, in eval mode.
        ids: (1, p) token ids.
        n_new: new tokens, at least 3, so that two decode steps can be compared.
        then: (1, q) token ids, the whole text of the next turn: usually what the first call
            returns and a message after it, possibly edited. Without it, nothing has to be kept.
        tokenizer: gives the tokens their text; that of `load_model` is known already.

    Raises:
        TypeError: loop is no function, or a model's own method; model is none of transformers;
            tokenizer is none.
        ValueError: ids or then of another shape or no tokens of the model, n_new not 3 to 1000, a
            model without a head, in training mode or too large for float32, or a text past the
            length from which a model's rotation depends on it. A mistake in the loop raises
            nothing, and neither does an exception in it: the verdict says what is wrong.

    >>> def loop(model, ids, n):
    ...     return model.generate(ids, max_new_tokens=n, do_sample=False)
    >>> kv.check(loop, model, ids, 4).headline
    "right, but that's the library's own loop: write yours"
    """
    check_loop(loop)
    check_prompt(ids)
    n_new = check_whole("n_new", n_new, least=LEAST_NEW, most=MOST_NEW)
    check_tokenizer(tokenizer)
    check_model(model)
    check_prompt(ids, model)
    check_rotation(model, ids.shape[1] + n_new)
    if then is not None:
        check_prompt(then, model, name="then")
    reference = uncached_reference(model, ids, n_new)
    if then is None:
        return judge_loop(loop, model, reference, tokenizer)
    return judge_turns(loop, model, reference, _next_reference(model, then, n_new), tokenizer)


def _next_reference(model, then, n_new: int) -> Reference:
    """What is right for the next turn; what can't be used is refused under its name."""
    check_prompt(then, model, name="then")
    check_rotation(model, then.shape[1] + n_new, name="then")
    try:
        return uncached_reference(model, then, n_new)
    except ValueError as error:  # of `record`: longer than the model's positions go
        raise ValueError(f"then: {error}") from None


def judge_loop(loop, model, reference: Reference, tokenizer=None) -> Verdict:
    """`check` against a reference that has been computed before."""
    with in_float32(model):
        verdict, _ = _judge_call(loop, model, reference, tokenizer)
        if not verdict.passed:
            return verdict
        ids = second_prompt(model, reference)
        judged = attempt(_judge_second_call, loop, model, ids, tokenizer)
    second = judged.result or _could_not_judge(judged.error)
    if second.passed:
        return verdict
    where = f"in a second call, with a prompt of {pluralize(ids.shape[1], 'token')}"
    return replace(second, headline=f"{where}: {second.headline}")


def _judge_second_call(loop, model, ids, tokenizer) -> Verdict:
    reference = uncached_reference(model, ids, LEAST_NEW)
    return _judge_call(loop, model, reference, tokenizer)[0]


def judge_turns(loop, model, reference: Reference, following: Reference, tokenizer=None):
    """`check` with `then`, against references that have been computed before."""
    with in_float32(model):
        first, evidence = _judge_call(loop, model, reference, tokenizer)
        if not first.passed:
            return first
        kept = find_kept(evidence, following.prompt, model)
        second, evidence = _judge_call(loop, model, following, tokenizer, kept)
    return join_verdicts(first, second, evidence)


def _judge_call(loop, model, reference, tokenizer, kept: Kept | None = None):
    """Run the loop once: its verdict and evidence. A small difference is held against a right
    loop's."""
    evidence = replace(_record(loop, model, reference, tokenizer), kept=kept)
    judged = attempt(_judge, evidence, model)
    verdict, gate = judged.result or _could_not_judge(judged.error), reference.gate
    if not verdict.passed and gate < max(verdict.gaps.values(), default=0) < 100 * gate:
        wider = replace(reference, gate=max(gate, 4 * _measure_rounding(model, reference)))
        evidence = replace(evidence, reference=wider)
        verdict = _judge(evidence, model)
    return replace(verdict, draw=make_drawer(find_loop_picture, evidence, verdict)), evidence


def _could_not_judge(error: BaseException) -> Verdict:
    says = f"this check could not judge your loop: {describe_error(error)}"
    return Verdict.from_cause(Cause(UNKNOWN, says))


def _measure_rounding(model, reference: Reference) -> float:
    """The gap of a right loop, which computes the same in other shapes."""

    def right(model, ids, n):
        cache, text = None, reference.ids.to(ids.device)
        for fed in (ids, *text[:, ids.shape[1] : -1].split(1, dim=1)):
            cache = model(fed, cache=cache, use_cache=True).cache
        return text

    with torch.no_grad():
        evidence = _record(right, model, reference, None)
        kinds = evidence.compare_entries, evidence.compare_logits
        return max(compare(only_right=False).gap for compare in kinds)


def _record(loop, model, reference, tokenizer) -> LoopEvidence:
    """Run the learner's loop and record it."""
    given, needed = reference.prompt.clone(), reference.ids.shape[1]
    seconds, numbers = max(SECONDS, 10 * reference.seconds), _random_state()
    with record(model, tokenizer, keep=SEEN, max_bytes=MAX_BYTES) as run:
        watch = Watch(run, max_calls=20 * needed + 200)
        with watch.attached(model):
            called = attempt(loop, model, given, reference.n_new, seconds=seconds)
    return LoopEvidence(
        reference=reference,
        run=run,
        watch=watch,
        out=read_ids(called.result, reference.ids, reference.n_prompt),
        error=called.error,
        prompt_changed=not torch.equal(given, reference.prompt),
        drew_numbers=_random_state() != numbers,
    )


def _random_state() -> tuple:
    """The state of every generator that a loop draws from by default."""
    name, keys, *rest = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), keys.tobytes(), *rest


@torch.no_grad()
def _judge(loop: LoopEvidence, model) -> Verdict:
    """Compare everything that a loop gave; look for a cause where something differs."""
    if cause := first_cause(RESULT_RULES, loop):
        return Verdict.from_cause(cause)
    tokens = _compare_tokens(loop, model)
    passed = tokens.passed and loop.is_supported and not first_cause(WORK_RULES, loop)
    logits = loop.compare_logits(only_right=passed)
    entries = loop.compare_entries(only_right=passed)
    which = "" if passed else " that was fed the right tokens"
    findings = [
        tokens,
        logits.finding("logits", f"every step{which}"),
        entries.finding("keys and values", f"every layer and position{which}"),
    ]
    seen = loop.steps_with_logits
    if not passed and logits.step is None and seen and len(seen) < len(loop.steps):
        says = f"equal up to step {seen[-1]}; the rows after it come from a wrong past"
        findings[1] = Finding("logits", None, says)
    if passed and not logits.count:
        findings[1] = Finding("logits", None, "not seen; the last hidden states are equal")
    gaps = {"logits": logits.gap, "keys and values": entries.gap}
    if passed:
        findings.append(compare_rows(loop))
        seen = "tokens, logits," if logits.count else "tokens,"
        headline = f"equal in {seen} keys and values; {describe_pace(loop)}"
        savings = describe_savings(loop.run.rows, loop.reference.n_prompt, loop.n_new)
        if loop.watch.is_of_library:
            headline, savings = "right, but that's the library's own loop: write yours", ""
        remarks, findings = list_remarks(loop), tuple(findings)
        return Verdict(
            True, headline, findings=findings, remarks=remarks, gaps=gaps, savings=savings
        )
    needed = loop.reference.n_prompt + max(loop.reference.n_new, loop.n_new) - 1
    needed -= loop.kept.n_reusable if loop.kept else 0
    findings.append(compare_work(loop.run.rows, needed, spare=1))  # the last token may be fed too
    cause = first_cause(LOOP_RULES, loop)
    if cause.name == "positions shifted" and tokens.passed and not logits.trouble:
        cause = replace(cause, says=f"harmless to the text: {cause.says}")
    first = entries if entries.step is not None else logits
    where = {"step": first.step if cause.step is None else cause.step}
    if cause.layer is None:
        where |= {"layer": first.layer, "position": first.position}
    return Verdict.from_cause(cause, findings=tuple(findings), gaps=gaps, **where)


WORK_RULES = (restarted, most_fed_again, kept_cache_not_used)


def _compare_tokens(loop: LoopEvidence, model) -> Finding:
    p, ids = loop.reference.n_prompt, loop.reference.ids
    if loop.n_equal < p:
        return Finding("tokens", False, "the result doesn't begin with the prompt")
    ends = model.generation_config.eos_token_id if model.generation_config else None
    ends = ends if isinstance(ends, list) else [ends]
    ours, right = loop.out[0, p:].tolist(), ids[0, p:].tolist()
    return compare_tokens(ours, right, loop.run.label, ends)
