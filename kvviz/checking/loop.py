"""Check a cached loop against the uncached one: tokens, logits, keys and values, and the work.

Both loops are recorded, and only what was recorded is judged: never a name, never the source. A
mistake is named by what it left in the recording; one that has no name here is said to have none,
with the place where it shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvviz.checking import causes, naming
from kvviz.checking.verdict import Finding, Verdict, own_lines
from kvviz.recording.recorder import record
from kvviz.recording.step import Step

GATE = 1e-5  # largest gap allowed, over the largest number compared, in float32


def check(loop, model, ids, n_new: int, *, tokenizer=None) -> Verdict:
    """Judge `loop(model, ids, n)`, a greedy loop that keeps keys and values.

    Args:
        loop: takes ids (1, p) and returns the prompt and n new tokens, (1, p + n). It may stop
            early at an end-of-text token.
        model: any causal decoder that `record` takes.
        ids: (1, p) token ids.
        n_new: new tokens, at least 3, so that two decode steps can be compared.
        tokenizer: gives the tokens their text; that of `load_model` is known already.

    Raises:
        ValueError: ids of another shape, or n_new below 3. A mistake in the loop raises nothing: the
            verdict tells it, an exception of the loop's own included.
    """
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.shape[0] != 1 or not ids.numel():
        got = tuple(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"check takes one prompt, ids of shape (1, p), and got {got}")
    if not isinstance(n_new, int) or n_new < 3:
        raise ValueError(
            f"n_new must be at least 3, for two decode steps to compare, and got {n_new!r}"
        )
    n = n_new
    reference = _Reference.of(model, ids, n)
    out, run, verdict = _recorded(loop, model, ids, n, tokenizer)
    if verdict and verdict.cause == "raised":
        verdict = _earlier_mistake(run, ids, reference) or verdict
    verdict = verdict or _judged(out, run, ids, n, reference)
    if verdict.passed:
        other = ids.flip(1) if ids.shape[1] > 1 else torch.cat([ids, ids], dim=-1)
        _, again, _ = _recorded(loop, model, other, n, tokenizer, keep=("logits",))
        if again and again[0].held_before:
            return Verdict(
                False, *causes.stale(again, "The first call was right; a second one"), step=0
            )
        if found := causes.not_greedy(again, first=max(0, len(again) - n)):
            return Verdict(False, *found)
    return verdict


# -- the two runs --------------------------------------------------------------------------------


@dataclass
class _Reference:
    """The uncached loop: its tokens, the logits of each step, and all keys and values."""

    ids: torch.Tensor  # (1, p + n)
    logits: list[torch.Tensor]  # n of (1, vocabulary)
    whole: Step  # the pass over every token but the last
    gate: float
    ends: list[int]  # tokens that end a text

    @classmethod
    @torch.no_grad()
    def of(cls, model, ids, n):
        with record(model, keep=("logits",), max_bytes=2**32) as run:
            for _ in range(n):
                newest = model(ids, use_cache=False).logits[:, -1:].argmax(-1)
                ids = torch.cat([ids, newest], dim=-1)
        with record(model, keep=naming.SEEN, max_bytes=2**32) as whole:
            model(ids[:, :-1], use_cache=False)
        precision = torch.finfo(next(model.parameters()).dtype).eps
        gate = GATE * max(1.0, precision / torch.finfo(torch.float32).eps)
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return cls(ids, [step.logits for step in run], whole[0], gate, ends)


def _recorded(loop, model, ids, n, tokenizer, keep=(*naming.SEEN, "logits")):
    """Run the learner's loop; a verdict instead of its result where there is nothing to judge."""
    given = ids.clone()
    with record(model, tokenizer, keep=keep, max_bytes=2**32) as run:
        try:
            out = loop(model, given, n)
        except NotImplementedError:
            return None, run, _open()
        except Exception as error:
            return None, run, _raised(error)
    if (out is None or out is Ellipsis) and not run:
        return None, run, _open()
    if not run:
        return (
            None,
            run,
            Verdict(
                False,
                "your loop never called the model",
                "model never called",
                "It should run the prompt once, and then one token at a time.",
            ),
        )
    if not torch.equal(given, ids):
        return (
            None,
            run,
            Verdict(
                False,
                "your loop changed the prompt it was given",
                "prompt changed",
                "Put what it produces into a new tensor, as torch.cat does.",
            ),
        )
    return out, run, None


def _open():
    return Verdict(False, "not done yet: replace the ... with your own loop", "not done yet")


def _raised(error):
    """The learner's own traceback: their lines, and the error; not ours, not the library's."""
    headline = f"your loop raised {type(error).__name__}: {error}"
    cause = getattr(error, "cause", "raised")  # `record` knows some of its refusals by name
    return Verdict(False, headline, cause, own_lines(error) or "in the call of your loop itself")


def _earlier_mistake(run, ids, reference):
    """What was wrong before a loop raised, if anything: the error may only follow from it."""
    found = causes.in_steps(run, ids.shape[1], reference.ids[0].tolist())
    return found and Verdict(False, *found[:3], step=found[3])


# -- what is compared ----------------------------------------------------------------------------


def _judged(out, run, ids, n, reference):
    p, expected = ids.shape[1], reference.ids
    if not isinstance(out, torch.Tensor) or out.ndim != 2 or out.shape[0] != 1:
        got = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        return Verdict(
            False,
            f"your loop returned {got}, and should return ids of shape {(1, p + n)}",
            "wrong result",
            "Return the prompt and the new tokens after it, in one tensor.",
        )
    limit = _first_difference(out, expected)
    logits, entries = _logits(run, reference, p, limit), _entries(run, reference, limit)
    until = "" if limit == out.shape[1] else " before the texts part"
    findings = (
        _tokens(out, expected, p, run, reference.ends),
        logits.finding("logits", f"every step{until}", reference.gate),
        entries.finding("keys and values", f"every layer and place{until}", reference.gate),
        _work(run, p, max(n, out.shape[1] - p)),
    )
    gaps = {"logits": logits.gap, "keys and values": entries.gap}
    if all(finding.passed for finding in findings):
        extra = run.positions - (out.shape[1] - 1)
        remark = f"{extra} row{'s' * (extra > 1)} more than needed: the last token need not be fed"
        return Verdict(
            True,
            f"equal in tokens, logits, keys and values; {_pace(run)}",
            findings=findings,
            remarks=(remark,) * (extra > 0),
            gaps=gaps,
        )
    headline, cause, advice, step = causes.of(
        out, run, p, n, reference.ids, scores_right=logits.step is None and logits.count > 0
    )
    first = entries if entries.step is not None else logits
    if cause == naming.UNKNOWN and (found := naming.named(run, reference.whole, reference.gate)):
        headline, cause, advice = found.headline, found.name, found.advice
        step, first = found.step, found
    return Verdict(
        False,
        headline,
        cause,
        advice,
        findings,
        gaps=gaps,
        step=first.step if step is None else step,
        layer=first.layer,
        place=first.place,
    )


def _first_difference(out, expected):
    """How many tokens are equal, counted from the start."""
    length = min(out.shape[1], expected.shape[1])
    equal = (out[0, :length] == expected[0, :length]).long()
    return int(equal.cumprod(0).sum())


@dataclass
class _Compared:
    """The largest gap of a comparison, over its scale, and where the gate was first passed."""

    gap: float = 0.0
    count: int = 0
    step: int | None = None
    layer: int | None = None
    place: int | None = None

    def take(self, gap, gate, **where):
        self.gap, self.count = max(self.gap, gap), self.count + 1
        if not gap <= gate and self.step is None:  # a gap that is no number passes no gate
            self.step, self.layer = where["step"], where.get("layer")
            self.place = where.get("place")

    def finding(self, name, what, gate):
        if not self.count:
            return Finding(name, None, "nothing left to compare")
        if self.step is None:
            return Finding(name, True, f"{what}, no gap over {gate:.0e} of the largest")
        where = [f"step {self.step}"]
        where += [f"layer {self.layer}", f"place {self.place}"] if self.layer is not None else []
        return Finding(name, False, f"differ first at {', '.join(where)}")


def _tokens(out, expected, p, run, ends):
    n_new, same = out.shape[1] - p, _first_difference(out, expected) - p
    if same < 0:
        return Finding("tokens", False, "the prompt itself is not what was given")
    if same < min(n_new, expected.shape[1] - p):
        ours, theirs = (run.label(int(ids[0, p + same])) for ids in (expected, out[:, : p + n_new]))
        return Finding("tokens", False, f"new token {same} is {theirs!r}, and should be {ours!r}")
    if n_new > expected.shape[1] - p or (n_new < expected.shape[1] - p and out[0, -1] not in ends):
        return Finding("tokens", False, f"{n_new} new tokens, of {expected.shape[1] - p}")
    return Finding("tokens", True, f"all {n_new} new ones")


def _logits(run, reference, p, limit):
    """Each step's last row against the uncached loop's at the same place."""
    compared = _Compared()
    for step in run:
        place = step.visible - 1
        if p - 1 <= place < min(limit, p - 1 + len(reference.logits)):
            right = reference.logits[place - p + 1]
            gap = float((step.logits - right).abs().max() / right.abs().max())
            compared.take(gap, reference.gate, step=step.index)
    return compared


def _entries(run, reference, limit):
    """Each step's keys and values against one pass over the whole text, place by place."""
    compared, whole = _Compared(), reference.whole
    for step in run:
        for layer in step.layers:
            places = step.column_positions(layer)
            for name in ("keys", "values"):
                ours, right = step.kept[name][layer][0], whole.kept[name][layer][0]
                good = (places >= 0) & (places < min(limit, right.shape[1]))
                right = right[:, places[good]]
                if not right.numel():
                    continue
                gaps = (ours[:, good] - right).abs().amax((0, 2)) / right.abs().max()
                over = (~(gaps <= reference.gate)).nonzero()
                place = int(places[good][over[0, 0]]) if len(over) else None
                where = {"step": step.index, "layer": layer, "place": place}
                compared.take(float(gaps.max()), reference.gate, **where)
    return compared


def _work(run, p, n_new):
    needed, rows = p + n_new - 1, run.positions
    if rows <= needed + 1:
        return Finding("work", True, f"{_pace(run)}; {rows} rows in all")
    return Finding("work", False, f"rows {_in_words(run.rows)}: {rows} in all, {needed} needed")


def _pace(run):
    last = run[-1].fed
    return "1 row a step" if last == 1 else f"{last} rows in the last step"


def _in_words(rows):
    return ", ".join(map(str, rows)) if len(rows) < 6 else f"{', '.join(map(str, rows[:4]))}, ..."
