"""What is tried of a cache that is right so far: more tokens, two caches in turn, a batch of two.

A cache that has a `fork` is tried with two that share their beginning, too; see `sharing`. One that
has a `crop` is taken back; see `cropping`.

A forward of the learner's is tried without a cache too, and with an empty one that counts as false.

Each trial returns the cause of what went wrong, or None.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.compare import compare_entries, compare_logits
from kvviz.checking.cropping import cropped
from kvviz.checking.right_forge import IN_TURN
from kvviz.checking.sharing import forked
from kvviz.checking.stubs import has_written
from kvviz.checking.time_limit import attempt_inside
from kvviz.checking.trial import rotates_on_read
from kvviz.checking.verdict import Finding, Verdict
from kvviz.forge import Forge


def try_further(trial, verdict: Verdict) -> Verdict:
    """The verdict, with what was tried; or that of the first trial that finds a mistake."""
    for name, tried in TRIALS.items():
        trial.feedings.clear()
        called = attempt_inside(tried, trial)
        if called.error is not None:
            found = trial.explain(called.error)
        elif called.result is not None:
            found = Verdict.from_cause(called.result)
        else:
            continue
        headline = f"with {name}: {found.headline}"
        finding = Finding(name, False, found.headline)
        return replace(
            found, headline=headline, findings=(*verdict.findings, finding), gaps=verdict.gaps
        )
    says = f"tried with at most {trial.right.further.fed} tokens held, after another prompt "
    says += "of the same length, with two caches in turn, and with a batch of two"
    if _has_own_forward(trial):
        says += "; `forward` also without a cache, and with an empty one that counts as false"
    if has_written(trial.given_class, "fork"):
        says += "; a fork and the cache it came from each hold what they would alone"
    if trial.not_cropped:
        says += f"; `crop` was not tried: {trial.not_cropped}"
    elif has_written(trial.given_class, "crop"):
        says += "; after a crop the cache goes on as if what was taken out had never been fed"
    if verdict.findings[2].passed is None and "rotated when read" not in verdict.headline:
        says += "; forward never calls attend, so keys and values are not compared"
    return replace(verdict, remarks=(*verdict.remarks, says))


def more_tokens(trial) -> Cause | None:
    """The text and more after it, in one cache."""
    right = trial.right
    if right.further.fed == right.text.shape[1]:
        return None
    cache = trial.begin("")
    return _compare(trial, right.further, right.further_sizes) or _compare_held(cache, right)


def _compare_held(cache, right) -> Cause | None:
    """The cache's own count, where it has one that is a number."""
    held, fed = attempt_inside(getattr, cache, "held", None).result, right.further.fed
    if type(held) is int and held != fed:
        return Cause("held miscounts", f"held is {held}, and {fed} tokens were fed")
    return None


def as_long_before(trial) -> Cause | None:
    """The text after another one whose prompt was as long: what is kept by length shows."""
    right = trial.right
    cache = trial.begin("")
    trial.feed(right.as_long, [right.as_long.fed])
    cache.reset()
    trial.feedings.clear()
    first, *singles = right.one_by_one
    return _compare(trial, right.known, [first, 1, 1, len(singles) - 2][: len(singles) + 1])


def batch_of_two(trial) -> Cause | None:
    """Two different texts side by side: a prompt, two tokens, and a chunk."""
    trial.begin("")
    return _compare(trial, trial.right.two, [4, 1, 1, 2])


def _compare(trial, text, sizes) -> Cause | None:
    feeding = trial.feed(text, sizes)
    for sequence in range(text.text.shape[0]):
        right = replace(text.reference, logits=text.reference.logits[sequence : sequence + 1])
        logits = compare_logits(feeding.by_call(sequence), right)
        entries = compare_entries(feeding.passes, right) if sequence == 0 else logits
        if logits.step is None and entries.step is None:
            continue
        cause = trial.find_cause()
        if logits.step is None and rotates_on_read(cause, True):
            continue
        first = logits if logits.step is not None else entries
        which = f" of sequence {sequence}" if text.text.shape[0] > 1 else ""
        return cause or Cause(UNKNOWN, f"step {first.step}: the logits{which} differ", first.step)
    return None


def two_caches(trial) -> Cause | None:
    """Two texts in turn, each in a cache of its own; then one of the two is reset."""
    one = attempt_inside(_take_turns, trial, False)
    if one.error is None and one.result is None:
        return None
    apart = attempt_inside(_take_turns, trial, True)
    if apart.error is None and apart.result is None:
        says = one.result or trial.tell(one.error)
        return Cause("state kept in the forge", f"{says}; with a forge for each, all is right")
    says = apart.result or trial.tell(apart.error)
    return Cause("state shared between caches", f"{says}; each cache alone is right")


def _take_turns(trial, apart: bool) -> str | None:
    """What went wrong when two texts were fed in turn, by one forge or by one for each."""
    right = trial.right
    texts = [right.other, right.earlier]
    trial.trace, trial.doing = None, "with two caches in turn"
    caches = [trial.new_cache(), trial.new_cache()]
    forges = [right.build(trial.forge_class)]
    forges.append(right.build(trial.forge_class) if apart else forges[0])
    start = 0
    for size in (3, 1, 1, IN_TURN - 5):
        if start == IN_TURN - 1:  # what one is told to forget, the other still needs
            caches[1].reset()
            texts, caches, forges = texts[:1], caches[:1], forges[:1]
        for which, (text, cache, forge) in enumerate(zip(texts, caches, forges, strict=True)):
            ours = forge(text.text[:, start : start + size].clone(), cache)
            right_logits = text.reference.logits[:, start : start + size]
            if not _equal(ours, right_logits, text.reference.gate):
                return f"the logits of cache {which} differ at position {start}"
        start += size
    return None


def _has_own_forward(trial) -> bool:
    """Whether the learner wrote `forward`, which decides whether there is a cache."""
    return trial.forge_class.forward is not Forge.forward


def no_cache(trial) -> Cause | None:
    """A forward of the learner's is called without a cache too, as it was before there was one."""
    if not _has_own_forward(trial):
        return None
    trial.trace, trial.doing = None, ""
    text, forge = trial.right.other, trial.right.build(trial.forge_class)
    called = attempt_inside(forge, text.text.clone())
    says = trial.tell(called.error) if called.error else "the logits differ"
    if called.error or not _equal(called.result, text.reference.logits, text.reference.gate):
        return Cause("no cache not handled", f"forward(ids): {says}")
    return None


def empty_cache_that_is_false(trial) -> Cause | None:
    """A cache that is false while it holds nothing, as many a container is."""
    if not _has_own_forward(trial):
        return None
    trial.trace, right = None, trial.right
    is_filled = {"__bool__": lambda self: self.get(0) is not None}
    kind = attempt_inside(type, "Empty", (trial.given_class,), is_filled).result
    if kind is None:  # a class that can't be extended
        return None
    trial.doing = ""
    cache, forge = kind(len(right.forge.layers)), right.build(trial.forge_class)
    pieces = right.text.split(right.one_by_one, dim=1)
    called = attempt_inside(lambda: torch.cat([forge(piece, cache) for piece in pieces], dim=1))
    if called.error or not _equal(called.result, right.reference.logits, right.reference.gate):
        says = trial.tell(called.error) if called.error else "the logits differ"
        return Cause("empty cache not used", f"it counts as false, and {says}")
    return None


def _equal(ours, right, gate) -> bool:
    if not isinstance(ours, torch.Tensor) or ours.shape != right.shape:
        return False
    return bool((ours - right).abs().max() <= gate * right.abs().max())


TRIALS = {
    "more tokens": more_tokens,
    "shared pages": forked,
    "an earlier prompt of the same length": as_long_before,
    "two caches in turn": two_caches,
    "a batch of two": batch_of_two,
    "a crop": cropped,
    "no cache": no_cache,
    "an empty cache": empty_cache_that_is_false,
}
