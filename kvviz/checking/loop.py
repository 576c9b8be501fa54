"""Check a cached loop against the uncached one: tokens, logits, keys and values, and the work.

Both are recorded, and only the recording is judged, never a name or the source: a mistake is named
by what it left there.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kvviz.arguments import check_whole
from kvviz.checking.causes import first_cause
from kvviz.checking.compare import GATE, SEEN, Reference, compare_tokens, compare_work, pace
from kvviz.checking.evidence import LoopEvidence
from kvviz.checking.learner_code import attempt
from kvviz.checking.loop_rules import LOOP_RULES, RESULT_RULES, SECOND_CALL_RULES
from kvviz.checking.verdict import Finding, Verdict
from kvviz.recording.recorder import record

MAX_BYTES = 2**32  # a recording for a check may take this much
LEAST_NEW = 3  # new tokens, so that two decode steps can be compared


def check(loop, model, ids, n_new: int, *, tokenizer=None) -> Verdict:
    """Check `loop(model, ids, n)`, a greedy loop that keeps keys and values, against a plain one.

    Your loop runs twice, the second time on another prompt, to see whether anything is left over.

    Args:
        loop: takes ids (1, p) and returns the prompt and n new tokens, (1, p + n). It may stop
            early at an end-of-text token.
        model: any causal decoder that `record` takes.
        ids: (1, p) token ids.
        n_new: new tokens, at least 3, so that two decode steps can be compared.
        tokenizer: gives the tokens their text; that of `load_model` is known already.

    Raises:
        ValueError: ids of another shape, or n_new below 3. A mistake in the loop raises nothing,
            and neither does an exception in it: the verdict says what is wrong.

    >>> def loop(model, ids, n):
    ...     return model.generate(ids, max_new_tokens=n, do_sample=False)
    >>> kv.check(loop, model, ids, 4).headline
    'equal in tokens, logits, keys and values; 1 row a step'
    """
    check_prompt(ids)
    n_new = check_whole("n_new", n_new, least=LEAST_NEW)
    return judge_loop(loop, model, uncached_reference(model, ids, n_new), tokenizer)


def check_prompt(ids):
    """Raise ValueError unless `ids` is one prompt, (1, p) with at least one token."""
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.shape[0] != 1 or not ids.numel():
        got = tuple(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"ids: expected one prompt of shape (1, p), and got {got}")


@torch.no_grad()
def uncached_reference(model, ids, n_new: int) -> Reference:
    """What the plain loop gives: n_new greedy tokens, and one pass over them without a cache."""
    p = ids.shape[1]
    with record(model, keep=()):  # which refuses a text that the model cannot take
        for _ in range(n_new):
            newest = model(ids, use_cache=False).logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, newest], dim=-1)
    with record(model, keep=SEEN, max_bytes=MAX_BYTES) as run:
        logits = model(ids[:, :-1], use_cache=False).logits
    precision = torch.finfo(next(model.parameters()).dtype).eps / torch.finfo(torch.float32).eps
    return Reference(ids, p, logits.float().cpu(), run[0], GATE * max(1.0, precision))


def judge_loop(loop, model, reference: Reference, tokenizer=None) -> Verdict:
    """`check` against a reference that has been computed before."""
    evidence = _record(loop, model, reference, tokenizer)
    if cause := first_cause(RESULT_RULES, evidence):
        return Verdict.from_cause(cause)
    verdict = _compare(evidence, model)
    if not verdict.passed:
        return verdict
    return _second_call(loop, model, reference, tokenizer) or verdict


def _record(loop, model, reference, tokenizer, keep=(*SEEN, "logits")) -> LoopEvidence:
    """Run the learner's loop and record it."""
    given = reference.prompt.clone()
    with record(model, tokenizer, keep=keep, max_bytes=MAX_BYTES) as run:
        called = attempt(loop, model, given, reference.n_new)
    changed = not torch.equal(given, reference.prompt)
    return LoopEvidence(reference, run, called.result, called.error, changed)


def _compare(loop: LoopEvidence, model) -> Verdict:
    """Compare everything that a loop gave; look for a cause where something differs."""
    reference, run = loop.reference, loop.run
    length = loop.out.shape[1]
    until = "" if loop.n_equal == length else " before the first different token"
    needed = reference.n_prompt + max(reference.n_new, loop.n_new) - 1
    findings = (
        _compare_tokens(loop, model),
        loop.logits.finding("logits", f"every step{until}"),
        loop.entries.finding("keys and values", f"every layer and position{until}"),
        compare_work(run.rows, needed, spare=1),  # the last token may be fed too
    )
    gaps = {"logits": loop.logits.gap, "keys and values": loop.entries.gap}
    if all(finding.passed for finding in findings):
        headline = f"equal in tokens, logits, keys and values; {pace(run.rows)}"
        remarks = _remarks(run.positions - (length - 1))
        return Verdict(True, headline, findings=findings, remarks=remarks, gaps=gaps)
    cause = first_cause(LOOP_RULES, loop)
    first = loop.entries if loop.entries.step is not None else loop.logits
    where = {"step": first.step if cause.step is None else cause.step}
    if cause.layer is None:
        where |= {"layer": first.layer, "position": first.position}
    return Verdict.from_cause(cause, findings=findings, gaps=gaps, **where)


def _compare_tokens(loop: LoopEvidence, model) -> Finding:
    p, ids = loop.reference.n_prompt, loop.reference.ids
    if loop.n_equal < p:
        return Finding("tokens", False, "the result doesn't begin with the prompt")
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return compare_tokens(loop.out[0, p:].tolist(), ids[0, p:].tolist(), loop.run.label, ends)


def _remarks(extra: int) -> tuple[str, ...]:
    rows = f"{extra} row{'s' * (extra > 1)} more than needed"
    return (f"{rows}: the last token doesn't have to be fed",) * (extra > 0)


def _second_call(loop, model, reference, tokenizer) -> Verdict | None:
    """Call a loop that was right once more, on another prompt; what is wrong then, if anything."""
    prompt = reference.prompt
    other = prompt.flip(1) if prompt.shape[1] > 1 else torch.cat([prompt, prompt], dim=-1)
    ids = torch.cat([other, reference.ids[:, reference.n_prompt :]], dim=-1)
    another = replace(reference, ids=ids, n_prompt=other.shape[1])  # only its prompt is used
    cause = first_cause(SECOND_CALL_RULES, _record(loop, model, another, tokenizer, ("logits",)))
    return cause and Verdict.from_cause(cause)
