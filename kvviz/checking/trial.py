"""Feed texts to a learner's cache and forge, compare everything, and name what is wrong.

First a prompt and single tokens, and chunks of 3 + 1 + 2. Only what is right there is tried
further: with more tokens, with two caches in turn, and with a batch of two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from kvviz.checking.cache_rules import find_cause, layers_skipped
from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.compare import (
    Reference,
    compare_entries,
    compare_logits,
    compare_tokens,
    compare_work,
)
from kvviz.checking.contract import CALLED, UNEXPECTED, parts
from kvviz.checking.learner_code import describe_error, is_checkers_own, own_lines
from kvviz.checking.probe import probe_cache
from kvviz.checking.right_forge import Text
from kvviz.checking.stubs import shorten
from kvviz.checking.time_limit import StillRunning, attempt_inside
from kvviz.checking.trace import Pass, Trace, Unusable
from kvviz.checking.verdict import Finding, Verdict
from kvviz.checking.watch import watched_class
from kvviz.forge import KVEntry

MAKING = "while the cache was made"
WRONG_ORDER = (
    "Nothing differs here, in chunks either: each key carries its position, and a sum has no order."
)
# Where the layers of a cache may have been mixed up, and writing by hand shows which.
MIXED = (UNKNOWN, "one slot for all layers", "another layer's slot", "stale cache", "raised")
MIXED += ("write never happens", "write missing", "not empty at first", "not empty after reset")


@dataclass
class Feeding:
    """A text fed to a cache in pieces: what was seen, and what each piece gave."""

    text: Text
    what: str = ""  # which part of the trial this is, for a message
    others: dict = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    problem: Cause | None = None
    emptied: Cause | None = None  # by forward itself

    @property
    def reference(self) -> Reference:
        return self.text.reference

    def logits(self) -> torch.Tensor:
        return torch.cat(self.outputs, dim=1)

    def by_call(self, sequence=0):
        """(call, positions, logits) of every piece."""
        start = 0
        for index, logits in enumerate(self.outputs):
            end = start + logits.shape[1]
            yield index, torch.arange(start, end), logits[sequence : sequence + 1]
            start = end


def rotates_on_read(cause, is_right_otherwise: bool) -> bool:
    """Whether keys are kept before rotation on purpose, and rotated each time they're read.

    What attention is given is then a key at position 0. Were it used like that, the logits would
    differ: if they don't, `attend` rotates it.
    """
    return cause is not None and cause.name == "key at position 0" and is_right_otherwise


class Trial:
    """A cache class and a forge class, each text fed to new instances of both."""

    def __init__(self, right, cache_class, forge_class):
        self.right, self.forge_class = right, forge_class
        self.trace, self.given_class = None, cache_class
        self.cache_class = watched_class(cache_class, self)
        self.feedings: list[Feeding] = []
        self.decode: Feeding | None = None  # the text fed as a prompt and single tokens
        self.left: dict[int, object] = {}  # layer -> what was held after a reset
        self.doing = self.not_cropped = ""  # why its `crop` was not tried

    # -- feeding -----------------------------------------------------------------------------------

    def begin(self, what):
        """A new forge and a new cache, watched from now on."""
        self.trace = None
        cache, forge = self.new_cache(), self.right.build(self.forge_class)
        self.trace = Trace(forge)
        self.trace.watch(cache)
        return cache

    def new_cache(self):
        self.doing = MAKING
        return self.cache_class(len(self.right.forge.layers))

    def feed(self, text: Text, sizes, what="", others=None) -> Feeding:
        """Feed a text to the watched forge and cache in pieces of these sizes."""
        trace, feeding = self.trace, Feeding(text, what, others or {})
        self.feedings.append(feeding)
        trace.restart()
        feeding.passes, feeding.rows = trace.passes, trace.rows
        for index, piece in enumerate(text.text.split(sizes, dim=1)):
            self.doing = f"at step {index}{what and ' '}{what}"
            try:
                feeding.outputs.append(trace.feed(piece))
            finally:
                feeding.problem, feeding.emptied = trace.problem, trace.emptied
        return feeding

    def feed_after_reset(self, sizes, what="") -> Feeding:
        """Feed the text after another text and a reset; a second cache is filled in between.

        The first time, the forge too has run over another text before.
        """
        right, cache = self.right, self.begin(what)
        earlier, other = right.earlier, right.other
        if self.decode is None:
            self.feed(earlier, [earlier.fed], "of the first text")
        else:
            self.fill(cache, earlier)
        self.doing = "in reset"
        cache.reset()
        self.doing = "right after reset"
        held = {layer: cache.get(layer) for layer in range(len(right.forge.layers))}
        self.left |= {layer: entry for layer, entry in held.items() if entry is not None}
        self.doing = "in a second cache"
        self.fill(self.new_cache(), other)
        others = {"stale cache": earlier, "state shared between caches": other}
        return self.feed(right.known, sizes, what, others)

    def fill(self, cache, text: Text) -> None:
        """Write what a text leaves into a cache, by hand: no forge runs."""
        trace, self.trace = self.trace, None
        for layer in text.whole.layers:
            kept = (text.whole.kept[name][layer] for name in ("keys", "values"))
            cache.update(
                layer, KVEntry(*(x.to(self.right.forge.embedding, copy=True) for x in kept))
            )
        self.trace = trace

    # -- judging -----------------------------------------------------------------------------------

    def judge(self) -> Verdict:
        """Feed the text both ways and compare everything; a mistake in the classes may raise."""
        right, reference = self.right, self.right.reference
        decode = self.decode = self.feed_after_reset(right.one_by_one)
        chunks = self.feed_after_reset(right.in_chunks, "in chunks")
        logits = compare_logits(decode.by_call(), reference)
        entries = compare_entries(decode.passes, reference)
        in_chunks = compare_logits(chunks.by_call(), reference)
        new = decode.logits()[0, reference.n_prompt - 1 :].argmax(-1)
        findings = (
            compare_tokens(new.tolist(), reference.ids[0, reference.n_prompt :].tolist()),
            logits.finding("logits", "every row of prompt and decode"),
            self.entries(decode, entries),
            in_chunks.finding("chunks", "every row, fed 3 + 1 + 2"),
            self.work(decode),
        )
        gaps = {"logits": logits.gap, "keys and values": entries.gap, "chunks": in_chunks.gap}
        if all(finding.passed is not False for finding in findings):
            headline = "equal in tokens, logits, keys and values, in chunks too; 1 row a step"
            if not decode.passes:
                headline = "equal in tokens and logits, in chunks too"
            return Verdict(True, headline, findings=findings, gaps=gaps)
        says = "the logits differ, but nothing that attention saw or gave does"
        cause = self.name_by_hand(self.find_cause() or Cause(UNKNOWN, says))
        others = [finding for finding in findings if finding is not findings[2]]
        if rotates_on_read(cause, all(finding.passed is not False for finding in others)):
            stored = Finding(findings[2].name, None, "kept before rotation, so not compared")
            findings = (*findings[:2], stored, *findings[3:])
            headline = "equal in tokens and logits, in chunks too; keys are rotated when read"
            return Verdict(True, headline, findings=findings, gaps=gaps)
        headline, (tokens, logits, _, in_chunks, work) = cause.says, findings
        more = {}
        if tokens.passed and logits.passed and work.passed is not False:
            harmless = "to the text" if in_chunks.passed else "in decode, wrong for chunks"
            headline = f"harmless {harmless}: {headline}"
        if in_chunks.passed and cause.name == "wrong order":
            more = {"advice": WRONG_ORDER}
        return Verdict.from_cause(cause, headline=headline, findings=findings, gaps=gaps, **more)

    def entries(self, decode, compared) -> Finding:
        skipped = layers_skipped(decode, len(self.right.forge.layers))
        if skipped and compared.step is None:
            return Finding("keys and values", False, skipped.says)
        what = "every layer and position, as attention saw them"
        return compared.finding("keys and values", what)

    def work(self, decode) -> Finding:
        if not decode.passes:
            return Finding("work", None, "attend was not called, so nothing was counted")
        return compare_work(decode.rows, sum(self.right.one_by_one))

    def find_cause(self) -> Cause | None:
        """The first difference in what attention saw, in any way of feeding."""
        return next((cause for each in self.feedings if (cause := self.cause_in(each))), None)

    def cause_in(self, feeding) -> Cause | None:
        if cause := layers_skipped(feeding, len(self.right.forge.layers)):
            return cause
        others, n_earlier = feeding.others, self.right.earlier.fed if feeding.others else 0
        for sequence in range(feeding.reference.ids.shape[0]):
            cause = find_cause(
                feeding.passes, feeding.reference, rotate=self.right.rotate,
                n_earlier=n_earlier, others=others, sequence=sequence,
            )  # fmt: skip
            if cause:  # the whole text may be run over again, and the cache emptied for that
                is_read = cause.name != "cache never read"
                return feeding.emptied if feeding.emptied and is_read else cause
        return None

    def name_by_hand(self, cause) -> Cause:
        """The same cause, or a better one: layers mixed up show when each is written by hand."""
        if cause.name not in MIXED:
            return cause
        config = self.right.forge.config
        shape = config.n_kv_heads, config.head_dim
        found = attempt_inside(probe_cache, self.given_class, config.n_layers, shape).result
        return cause if found is None or found.name == cause.name else found

    # -- errors ------------------------------------------------------------------------------------

    def explain(self, error) -> Verdict:
        """An error may only follow from a mistake before it: then that is the cause."""
        if is_checkers_own(error):
            says = f"this check could not judge your classes: {describe_error(error)}"
            return Verdict.from_cause(Cause(UNKNOWN, says))
        lines, says = shorten(own_lines(error)), self.tell(error)
        cause = attempt_inside(self.earlier_mistake).result
        if cause is None and self.trace and self.trace.failed.startswith("attend"):
            cause = self.trace.misfit
        if cause is not None and cause.name == UNKNOWN and lines:
            raised = Cause("raised", says, lines=f"{lines}\nBefore that, {cause.says}")
            return Verdict.from_cause(raised)
        if cause is None:
            name = self.trace.failed.partition("(")[0] if self.trace else ""
            if self.doing == MAKING:
                name = "__init__"
                if isinstance(error, TypeError) and not lines:
                    says = f"`__init__` must take n_layers: {says}"
            lines = "\n".join(filter(None, (lines or CALLED.get(name, ""), self.hint(name, error))))
            return Verdict.from_cause(Cause("raised", says, lines=lines))
        if isinstance(error, Unusable) or (cause.name == UNEXPECTED and not lines):
            return Verdict.from_cause(cause)  # our own line raised, and it says less
        more = f"{lines}\n" if lines else ""
        return Verdict.from_cause(cause, advice=f"{cause.advice}\nThen {says}\n{more}".rstrip())

    def hint(self, method, error) -> str:
        """What `get` must do where nothing is held."""
        is_missing = isinstance(error, (LookupError, AttributeError, TypeError))
        if method != "get" or not is_missing or self.trace.has_written:
            return ""
        return (
            f"{'After a reset' if 'reset' in self.doing else 'At first'}, `get` must return None."
        )

    def tell(self, error) -> str:
        """An error in a line: what it says, in which method, and when."""
        try:
            says = " ".join(str(error).split())
        except Exception:
            says = "(its message can't be shown)"
        failed = f", in {self.trace.failed}" if self.trace and self.trace.failed else ""
        when = f"{failed}{self.doing and ', '}{self.doing}"
        if isinstance(error, StillRunning):
            return f"{says}{when}"
        return f"it raised {type(error).__name__}: {says}{when}"

    def earlier_mistake(self) -> Cause | None:
        """What was wrong before an error; looking for it may raise once more."""
        if self.left and len(self.left) < len(self.right.forge.layers):
            which = f"layer{'s' * (len(self.left) > 1)} {', '.join(map(str, self.left))}"
            says = f"some slots were not empty after a reset: {which}"
            kept = [found[0] for entry in self.left.values() if (found := parts(entry))]
            is_zero = kept and not any(keys.any() for keys in kept)
            return Cause("not empty after reset" if is_zero else "stale cache", says)
        for feeding in self.feedings:
            found = attempt_inside(self.cause_in, feeding).result
            problem = feeding.problem
            if problem and (found is None or found.step is None or problem.step <= found.step):
                return problem
            if found:
                return self.name_by_hand(found)
        named = self.name_by_hand(Cause("raised", ""))
        return None if named.name == "raised" else named
