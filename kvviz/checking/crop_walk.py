"""Feed a cache, lead it astray, take it back, and compare what it holds after each step."""

from __future__ import annotations

import dis

import torch

from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.contract import CALLED, UNEXPECTED, copy_entry, describe
from kvviz.checking.crop_rules import Crop, Later, begins, take_first
from kvviz.checking.learner_code import own_lines
from kvviz.checking.page_rules import find_page_size
from kvviz.checking.right_forge import Text
from kvviz.checking.stubs import find_raising
from kvviz.checking.time_limit import attempt_inside

# What a crop does by chance that takes its number for something else.
MAYBE_DIFFERENT = (UNKNOWN, "nothing cropped", "empty columns", "crop counts differently")


class Mistake(Exception):
    """Ends the trial with a cause."""

    def __init__(self, cause: Cause):
        super().__init__(cause.says)
        self.cause = cause


class Refused(Exception):
    """Ends the trial: the cache says that it can't go back."""


class Walk:
    """A cache that is fed a text, led astray, and taken back; each step is compared.

    `held` is how many tokens it should hold, `right` what it should hold of the whole text, `gone`
    what it held before the last crop, and `taken_out` how many each crop took, the last one first.
    """

    def __init__(self, trial, text: Text, cache=None, forge=None):
        self.trial, self.text, right = trial, text, trial.right
        self.forge = right.build(trial.forge_class) if forge is None else forge
        self.room = right.forge.config.max_positions
        self.cache = trial.new_cache() if cache is None else cache
        self.right = hold_at_once(trial, text)
        self.held, self.after, self.gone, self.taken_out = 0, "before any crop", None, []

    def feed(self, *sizes: int) -> Walk:
        """Feed the text's next tokens, in pieces; stops where the text ends."""
        for size in sizes:
            ids = self.text.text[:, self.held : self.held + size]
            if ids.shape[1]:
                self._call(ids)
        return self

    def _call(self, ids):
        self.trial.doing = f"{self.after}, at position {self.held}"
        logits = self.forge(ids.clone(), self.cache)
        self.held, start = self.held + ids.shape[1], self.held
        self.compare()
        reference = self.text.reference
        right = reference.logits[:, start : self.held]
        if logits.shape != right.shape or not _is_close(logits, right, reference):
            says = f"{self.after}, the logits at position {start} differ, and what is held doesn't"
            raise Mistake(Cause(UNKNOWN, says))

    def stray(self, *sizes: int) -> Walk:
        """Feed other tokens than the text's; fewer where the model has no more positions."""
        vocab = self.trial.right.forge.config.vocab_size
        for size in sizes:
            size = min(size, self.room - self.held)
            wrong = self.text.text[:, torch.arange(self.held, self.held + size) % self.text.fed]
            if size > 0:
                self.trial.doing = f"at position {self.held}"
                self.forge((wrong + 1) % vocab, self.cache)
                self.held += size
        return self

    def crop(self, n: int) -> Walk:
        """Take the last n tokens out, and look at what is left."""
        n = min(n, self.held)
        before = self.read()
        self.trial.doing = f"in crop({-n})"
        called = attempt_inside(self.cache.crop, -n)
        if called.error is not None:
            self._refuse(called.error, n)
        crop = Crop(n, before, self.read(f"after crop({-n}), "))
        if cause := crop.mistake():
            asked = cause.name in MAYBE_DIFFERENT and count_differently(self.trial, n)
            raise Mistake(asked or cause)
        self.held, self.after, self.gone = self.held - n, f"after crop({-n})", before
        self.taken_out = [n, *self.taken_out]
        self._compare_held(n)
        return self

    def _refuse(self, error, n):
        says = self.trial.tell(error)
        if is_refusal(error):
            raise Refused(says)
        lines = own_lines(error) or CALLED["crop"]
        raise Mistake(count_differently(self.trial, n) or Cause("raised", says, lines=lines))

    def _compare_held(self, n):
        """The cache's own count, where it has one that is a number."""
        held = attempt_inside(getattr, self.cache, "held", None).result
        if type(held) is int and held != self.held:
            says = f"after crop({-n}), held is {held}, and {self.held} tokens are held"
            raise Mistake(Cause("held miscounts", says))

    def read(self, when="") -> list:
        """Copies of what the cache holds, layer by layer."""
        entries = []
        for layer in range(len(self.trial.right.forge.layers)):
            entries.append(copy_entry(entry := self.cache.get(layer)))
            if entries[-1] is None and entry is not None:
                says = f"{when}get({layer}) returned {describe(entry)}, expected a KVEntry"
                raise Mistake(Cause(UNEXPECTED, says, layer=layer))
        return entries

    def compare(self):
        """What is held, with what the right text alone leaves."""
        for layer, entry in enumerate(self.read()):
            if not begins(entry, right := self.right[layer], self.held):
                gone = self.gone and self.gone[layer]
                right = take_first(right, self.held)
                more = gone, self.taken_out, find_page_size(self.cache)
                later = Later(self.after, layer, entry, right, *more)
                raise Mistake(later.mistake(self.trial.right.rotate))


def _is_close(logits, right, reference) -> bool:
    return bool((logits - right).abs().max() <= 10 * reference.gate * right.abs().max())


def hold_at_once(trial, text: Text) -> list:
    """What a new cache holds after the whole text in one call."""
    trial.doing, cache = "", trial.new_cache()
    trial.right.build(trial.forge_class)(text.text.clone(), cache)
    return [copy_entry(cache.get(layer)) for layer in range(len(trial.right.forge.layers))]


def is_refusal(error) -> bool:
    """Whether the cache says that it can't: a NotImplementedError, or a RuntimeError that its
    `crop` raises by itself, as the library's does once a window has dropped tokens."""
    if isinstance(error, NotImplementedError):
        return True
    last = find_raising(error)
    if type(error) is not RuntimeError or last is None or last.tb_frame.f_code.co_name != "crop":
        return False
    done = dis.get_instructions(last.tb_frame.f_code)
    return any(e.opname == "RAISE_VARARGS" and e.offset == last.tb_lasti for e in done)


def count_differently(trial, n: int) -> Cause | None:
    """Whether the positive number does it, or says how many are kept: asked after a mistake."""
    return attempt_inside(_try_positive, trial).result if n else None


def _try_positive(trial) -> Cause | None:
    walk = Walk(trial, trial.right.other).feed(trial.right.other.fed - 1)
    before = walk.read()
    walk.cache.crop(2)
    crop = Crop(2, before, walk.read())
    for left, does in ((crop.left, "takes the last two out"), (2, "keeps the first two")):
        if len(crop.layers_that_begin(left)) == len(before):
            says = f"crop(2) {does}; expected: crop(-2) takes the last two tokens out"
            return Cause("crop counts differently", says)
    return None
