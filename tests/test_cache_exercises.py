"""Notebooks 04 to 06: stub not done, solution passes, each typical wrong answer has its hint."""

import re

import numpy as np
import pytest
import small
import torch

import kvviz
from kvviz import exercises, faults
from kvviz.checking.cache import check_cache, logit_gap
from kvviz.forge import Forge, KVCache, KVEntry, causal_mask
from kvviz.recording.recorder import record
from tools.notebooks import ROOT, read

X, Y, Z = exercises.X, exercises.Y, exercises.Z


def stub(*_): ...


# -- 04: the cache -------------------------------------------------------------------------------


class Open:
    def __init__(self, n_layers): ...

    def get(self, layer): ...

    def update(self, layer, entry): ...

    def reset(self): ...


class Appends(KVCache):
    def update(self, layer, entry):
        if (past := self.get(layer)) is not None:
            entry = type(entry)(*(torch.cat(pair, dim=2) for pair in zip(past, entry, strict=True)))
        super().update(layer, entry)


class OneSlot(Open):
    entry = None

    def get(self, layer):
        return self.entry

    def update(self, layer, entry):
        self.entry = entry

    def reset(self):
        self.entry = None


class NeverReset(KVCache):
    def reset(self):
        self.slots = []


def test_a_cache_without_lines_is_not_done_yet():
    assert check_cache(Open).cause == "not done yet"


@pytest.mark.parametrize(
    ("wrong", "cause", "hint"),
    [
        (Appends, "written twice", "`update` replaces"),
        (OneSlot, "one slot for all layers", "each layer"),
        (NeverReset, "stale cache", "reset must empty every slot"),
    ],
)
def test_a_wrong_cache_is_named_even_where_it_raises(wrong, cause, hint):
    verdict = check_cache(wrong)
    assert verdict.cause == cause and hint in verdict.advice, verdict


# -- 04: the forward pass ------------------------------------------------------------------------

FORWARD = """
class Mine(Forge):
    def positions(self, t, pos_start):
        return {positions}

    def forward(self, ids, cache=None):
        t = {t}
        pos_start = {start}
        {count}
        rotation, mask = self.rotation(self.positions(t, pos_start)), {mask}
        x = self.embed(ids)
        for layer in {layers}:
            x, entry = self.block(layer, x, rotation, mask, {past})
            if {there}:
                {write}
        return {logits}
"""
THERE = "cache is not None"
RIGHT_FORWARD = {
    "positions": "torch.arange(pos_start, pos_start + t)",
    "t": "ids.shape[1]",
    "layers": "range(len(self.layers))",
    "start": f"cache.held if {THERE} else 0",
    "count": "",
    "mask": "self.mask(t, pos_start, pos_start + t)",
    "past": f"cache.get(layer) if {THERE} else None",
    "there": THERE,
    "write": "cache.update(layer, entry)",
    "logits": "self.unembed(x)",
}


def with_forward(**changed):
    """A forge whose forward is written out, with some of its parts changed."""
    names = {"Forge": Forge, "torch": torch, "KVCache": KVCache}
    exec(FORWARD.format(**RIGHT_FORWARD | changed), names)
    return names["Mine"]


class OpenForward(Forge):
    def positions(self, t, pos_start): ...

    def forward(self, ids, cache=None): ...


class HalfOpen(Forge):
    def positions(self, t, pos_start):
        return torch.arange(pos_start, pos_start + t)

    def forward(self, ids, cache=None): ...


class MakesACache(Forge):
    def forward(self, ids, cache=None):
        cache = KVCache(len(self.layers)) if cache is None else cache
        return with_forward().forward(self, ids, cache)


def test_a_forward_of_the_learners_own_is_right():
    for kind in (with_forward(), MakesACache):
        feedback = exercises.forward(kind)
        assert feedback.passed and "also without a cache" in feedback.verdict.remarks[0]
    assert exercises.cache(KVCache).passed and exercises.cache(KVCache).hints == ()


def test_an_open_forward_is_not_done_yet_and_its_hints_are_folded():
    assert exercises.forward(OpenForward).state == "not done yet"
    half = exercises.forward(HalfOpen)
    assert half.state == "not done yet" and "replace the ... in `forward`" in half.message
    methods = {"positions": OpenForward.positions, "forward": with_forward().forward}
    other_half = exercises.forward(type("OtherHalf", (Forge,), methods))
    assert other_half.state == "not done yet" and "... in `positions`" in other_half.message
    page = half._repr_html_()
    assert page.count("<details>") == 2 and "cache.held" in half.hints[1]
    assert exercises.cache(Open).hints and repr(half).startswith("· not done yet")


@pytest.mark.parametrize(
    ("changed", "cause", "hint"),
    [
        ({"start": "0"}, "position restarts", "counts on from the tokens already held"),
        ({"positions": "torch.arange(t)"}, "position restarts", "offset in this call"),
        (
            {"start": "getattr(self, 'pos', 0)", "count": "self.pos = pos_start + t"},
            "counter left behind",
            "Read the position from the cache's tensors",
        ),
        ({"write": "pass"}, "write never happens", "must be in the slot at the next call"),
        ({"past": "cache.get(0)"}, "another layer's slot", "reads and writes that one"),
        ({"past": "cache.get(layer - 1)"}, "another layer's slot", "reads and writes that one"),
        ({"write": "cache.update(0, entry)"}, "another layer's slot", "reads and writes that one"),
        ({"past": "None"}, "past not appended", "must reach `block` as the past"),
        ({"mask": "self.mask(t, 0, t)"}, "mask of another width", "from where the cache ends"),
        (
            {"mask": "torch.ones(t, pos_start + t).tril().bool()"},
            "mask from the top left",
            "bottom right",
        ),
        ({"mask": "None"}, "mask missing", "need the triangle"),
        (
            {"start": "cache.held", "past": "cache.get(layer)", "there": "True"},
            "no cache not handled",
            "Without a cache, positions start at 0",
        ),
        (
            {
                "start": "cache.held if cache else 0",
                "past": "cache.get(layer) if cache else None",
                "there": "cache",
            },
            "empty cache not used",
            "An empty cache is a cache",
        ),
        ({"logits": "x"}, "unexpected return value", ""),
        ({"layers": "range(3)"}, "layer never ran", "Run every layer"),
        ({"layers": "range(1, 4)"}, "layer never ran", "Run every layer"),
        ({"layers": "(0, 1, 3)"}, "layer never ran", "Run every layer"),
        ({"t": "len(ids)"}, "tokens miscounted", "ids is (B, t)"),
        ({"count": "cache and cache.reset()"}, "cache emptied", "needed until the text ends"),
        (
            {"logits": "self.unembed(x) if cache is None or not cache.reset() else 0"},
            "cache emptied",
            "needed until the text ends",
        ),
        ({"positions": "torch.arange(t)[None]"}, "unexpected return value", "that method returns"),
        ({"positions": "torch.tensor(0)"}, "unexpected return value", "that method returns"),
        ({"positions": "[pos_start]"}, "unexpected return value", ""),
    ],
)
def test_each_mistake_in_a_forward_is_told_from_the_others(changed, cause, hint):
    feedback = exercises.forward(with_forward(**changed))
    assert feedback.state == "not right yet" and feedback.hints
    assert feedback.verdict.cause == cause and hint in feedback.verdict.advice, feedback


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"layers": "range(3)"}, "step 0: layer 3 never ran"),
        ({"layers": "range(1, 4)"}, "step 0: layer 0 never ran"),
        ({"layers": "range(2)"}, "step 0: layers 2, 3 never ran"),
        ({"t": "len(ids)"}, "step 0: `positions` got t=1, but 7 tokens were fed"),
        ({"count": "cache and cache.reset()"}, "step 1: forward emptied the cache"),
        (
            {"positions": "torch.arange(pos_start, pos_start + t)[None]"},
            "step 0: positions returned a tensor of shape (1, 7): return a tensor, (t,) int64",
        ),
    ],
)
def test_a_forward_is_told_what_it_did_and_not_where_it_raised(changed, says):
    verdict = exercises.forward(with_forward(**changed)).verdict
    assert verdict.headline == says
    entries = [each for each in verdict.findings if each.name == "keys and values"]
    assert not any(each.passed for each in entries)


def test_a_reset_of_a_cache_that_holds_nothing_is_no_mistake():
    count = "cache is not None and cache.held == 0 and cache.reset()"
    assert exercises.forward(with_forward(count=count)).passed


class KeptInTheClass:
    slots = (None,) * 4

    def __init__(self, n_layers):
        self.n_layers = n_layers

    def get(self, layer):
        return self.slots[layer]

    def update(self, layer, entry):
        self.slots[layer] = entry

    def reset(self):
        self.slots = [None] * self.n_layers


@pytest.mark.parametrize("slots", [[None] * 4, dict.fromkeys(range(4))])
def test_slots_in_the_class_are_found_though_reset_makes_new_ones(slots):
    kind = type("InTheClass", (KeptInTheClass,), {"slots": slots})
    verdict = exercises.cache(kind).verdict
    assert "a new cache held what had been written to another" in verdict.headline
    assert "kept where every cache sees it" in verdict.advice


def test_a_new_cache_with_numbers_of_its_own_shares_nothing():
    class Noise(KVCache):
        def get(self, layer):
            return super().get(layer) or KVEntry(*torch.ones(2, 1, 2, 3, 14))

    assert exercises.cache(Noise).verdict.cause == "not empty at first"


def test_a_forward_that_asks_for_no_positions_is_recorded():
    own = "self.rotation(torch.arange(pos_start, pos_start + t))"
    source = FORWARD.replace("self.rotation(self.positions(t, pos_start))", own)
    names = {"Forge": Forge, "torch": torch}
    exec(source.format(**RIGHT_FORWARD), names)
    forge, cache = names["Mine"].small(), KVCache(4)
    with record(forge) as run:
        for chunk in small.prompt(6).split([4, 2], dim=1):
            forge(chunk, cache)
    assert run[1].position_ids.tolist() == [[4, 5]] and run[1].held_before == 4


# -- 04: the mask --------------------------------------------------------------------------------


def test_what_the_forge_wrote_is_right_and_still_to_be_written():
    class Borrowed(Forge):
        def forward(self, ids, cache=None):
            return super().forward(ids, cache)

    for kind in (Forge, Borrowed):
        verdict = exercises.forward(kind).verdict
        assert verdict.passed and "write it yourself" in verdict.remarks[-1]
    assert "yourself" not in repr(exercises.forward(with_forward()))
    for borrowed in (causal_mask, kvviz.causal_mask, lambda *given: causal_mask(*given)):
        assert "write it yourself" in exercises.causal_mask(borrowed).message
    own = exercises.causal_mask(lambda t, s, e: torch.ones(t, e).tril(s).bool())
    assert own.passed and "yourself" not in own.message


def test_causal_mask_solved():
    assert exercises.causal_mask(stub).state == "not done yet"
    assert exercises.causal_mask(causal_mask).passed
    assert exercises.causal_mask(lambda t, start, end: torch.ones(t, end).tril(start).bool()).passed


@pytest.mark.parametrize(
    "form",
    [
        lambda mask: mask.int(),
        lambda mask: mask.float(),
        lambda mask: mask.numpy(),
        lambda mask: mask.numpy().astype(int),
        lambda mask: mask.tolist(),
    ],
)
def test_a_right_mask_in_any_form_is_right(form):
    feedback = exercises.causal_mask(lambda t, s, e: form(torch.ones(t, e).tril(s).bool()))
    assert feedback.passed and feedback.message.endswith("add .bool()")


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (
            lambda t, s, e: torch.ones(t, t).tril().bool(),
            "your mask is 3 x 3, but the keys held need columns too: 3 x 7",
        ),
        (lambda t, s, e: torch.ones(t, e).tril().bool(), "sees 1 key and should see 5"),
        (lambda t, s, e: 2 * torch.ones(t, e).tril(s), "got other numbers than 0 and 1"),
        (
            lambda t, s, e: torch.zeros(t, e).masked_fill(
                ~torch.ones(t, e).tril(s).bool(), float("-inf")
            ),
            "0 and -inf are what a mask adds to the scores",
        ),
        (lambda t, s, e: ~torch.ones(t, e).tril(s).bool(), "Invert it"),
        (lambda t, s, e: torch.ones(t, e).tril(s - 1).bool(), "A token sees its own key too"),
        (lambda t, s, e: torch.ones(t, e).bool(), "row 0, at position 0, may see position 1"),
        (lambda t, s, e: [[True] * e] * t, "row 0, at position 0, may see position 1"),
        (lambda t, s, e: {"mask": t}, "expected True or False, shape (6, 6), but got dict"),
        (lambda t, s, e: torch.ones(t, e, 2).bool(), "but got shape (6, 6, 2)"),
        (lambda t, s, e: t.tril(), "AttributeError in line"),
        (
            lambda t, s, e: causal_mask(t, s, e) if t > 1 else torch.arange(e)[None] < 1,
            "1 row with 6 held",
        ),
        (lambda t, s, e: causal_mask(t, s, e) if t > 1 else t.tril(), "AttributeError in line"),
    ],
)
def test_causal_mask_wrong(wrong, hint):
    feedback = exercises.causal_mask(wrong)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message


# -- 04: a prompt in chunks ----------------------------------------------------------------------


def chunked(forge, ids, sizes):
    cache = KVCache(len(forge.layers))
    return torch.cat([forge(chunk, cache) for chunk in ids.split(sizes, dim=1)], dim=1), cache


def new_cache_each(forge, ids, sizes):
    for chunk in ids.split(sizes, dim=1):
        cache = KVCache(len(forge.layers))
        logits = forge(chunk, cache)
    return logits, cache


def prefixes(forge, ids, sizes):
    cache = KVCache(len(forge.layers))
    return [forge(ids[:, :end], cache) for end in (3, 4, 6)][-1], cache


def at_once(forge, ids, sizes):
    cache = KVCache(len(forge.layers))
    return forge(ids, cache), cache


def last_chunk_only(forge, ids, sizes):
    logits, cache = chunked(forge, ids, sizes)
    return logits[:, -2:], cache


def other_order(forge, ids, sizes):
    return chunked(forge, ids.flip(1), sizes)


def empty_cache_returned(forge, ids, sizes):
    return chunked(forge, ids, sizes)[0], KVCache(len(forge.layers))


def other_sizes(forge, ids, sizes):
    return chunked(forge, ids, [2, 2, 2])


def nothing(forge, ids, sizes):
    chunked(forge, ids, sizes)


def never_passed(forge, ids, sizes):
    cache = KVCache(len(forge.layers))
    return torch.cat([forge(chunk) for chunk in ids.split(sizes, dim=1)], dim=1), cache


def passed_once(forge, ids, sizes):
    first, *rest = ids.split(sizes, dim=1)
    cache = KVCache(len(forge.layers))
    return torch.cat([forge(first, cache), *map(forge, rest)], dim=1), cache


def sliced(*ends):
    def function(forge, ids, sizes):
        cache = KVCache(len(forge.layers))
        return torch.cat([forge(ids[:, a:b], cache) for a, b in ends], dim=1), cache

    return function


IDS = small.prompt(6)


@pytest.fixture(scope="module")
def forge():
    return Forge.small()


def test_chunked_prefill_solved(forge):
    assert exercises.chunked_prefill(stub, forge, small.prompt(6)).state == "not done yet"
    feedback = exercises.chunked_prefill(chunked, forge, small.prompt(6))
    assert feedback.passed and feedback.message.startswith("rows 3, 1, 2")
    as_list = exercises.chunked_prefill(lambda *given: list(chunked(*given)), forge, IDS)
    assert as_list.passed, as_list


class TuplesInside(KVCache):
    def update(self, layer, entry):
        super().update(layer, tuple(entry))


def test_chunks_may_fill_a_cache_of_the_learners_own(forge):
    def own(forge, ids, sizes):
        cache = TuplesInside(4)
        return torch.cat([forge(chunk, cache) for chunk in ids.split(sizes, dim=1)], dim=1), cache

    assert exercises.chunked_prefill(own, forge, IDS).passed


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (new_cache_each, "the cache held nothing. All chunks go into the same cache"),
        (prefixes, "the cache held 3 and you fed 4, from the beginning"),
        (at_once, "rows 6: the whole prompt went in at once"),
        (last_chunk_only, "join the chunks' logits along dim 1"),
        (other_order, "are the chunks in order"),
        (never_passed, "step 0: the call had no cache. Pass it in every call: forge(chunk, cache)"),
        (passed_once, "step 1: the call had no cache. Pass it in every call: forge(chunk, cache)"),
        (sliced((0, 3), (2, 3), (4, 6)), f"token {IDS[0, 2]}, position 2 of the prompt, was fed t"),
        (sliced((0, 3), (4, 5), (4, 6)), f"token {IDS[0, 3]}, position 3 of the prompt, was left"),
        (sliced((0, 3), (2, 4), (3, 6)), f"token {IDS[0, 2]}, position 2 of the prompt, was fed t"),
        (sliced((0, 3), (3, 4)), f"token {IDS[0, 4]}, position 4 of the prompt, was left out"),
        (empty_cache_returned, "holds 0 tokens, but 6 were fed"),
        (other_sizes, "rows [2, 2, 2]: expected chunks of [3, 1, 2]"),
        (nothing, "your function returned nothing"),
        (lambda forge, ids, sizes: forge(ids), "return two things"),
    ],
)
def test_chunked_prefill_wrong(forge, wrong, hint):
    feedback = exercises.chunked_prefill(wrong, forge, small.prompt(6))
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message


def test_chunked_prefill_shows_the_chunks_that_were_fed(forge):
    sentence = exercises.chunked_prefill(chunked, forge, IDS).picture.sentence
    assert "with a cache, steps 0, 1, 2: rows computed 3, 1, 2; columns 3, 4, 6" in sentence


@pytest.mark.parametrize(
    ("wrong", "step"),
    [(new_cache_each, 1), (prefixes, 1), (at_once, 0), (other_order, 0), (other_sizes, 0)],
)
def test_chunked_prefill_shows_the_step_that_was_fed_wrongly(forge, wrong, step):
    sentence = exercises.chunked_prefill(wrong, forge, IDS).picture.sentence
    assert sentence.startswith(f"yours: step {step}, ") and "expected: " in sentence, sentence


def test_chunked_prefill_shows_no_step_where_only_the_answer_is_wrong(forge):
    for wrong in (last_chunk_only, empty_cache_returned):
        assert exercises.chunked_prefill(wrong, forge, IDS).picture is None


# -- 05: rounding or bug -------------------------------------------------------------------------


def rounding(gap32, gap64, scale):
    return gap32 <= 1e-5 * scale and gap64 <= 1e-6 * gap32


def test_is_rounding_solved():
    assert exercises.is_rounding(stub).state == "not done yet"
    assert exercises.is_rounding(rounding).passed
    assert exercises.is_rounding(lambda g32, g64, s: g32 <= s / 1e5 and g64 <= 1e-9 * s).passed


@pytest.mark.parametrize("form", [int, float, np.bool_, np.array, torch.tensor])
def test_is_rounding_takes_true_in_any_form(form):
    assert exercises.is_rounding(lambda *gap: form(rounding(*gap))).passed


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda g32, g64, scale: g32 <= 1e-5, "relative to the largest"),
        (lambda g32, g64, scale: g32 <= 1e-5 * scale, "float64 hardly shrinks it"),
        (lambda g32, g64, scale: g64 < g32 / 9 or g32 == 0, "float64 hardly shrinks it"),
        (lambda g32, g64, scale: g64 <= 1e-6 * g32, "over this course's gate"),
        (lambda g32, g64, scale: g64 < 1e-9, "float64's gap grows with the logits too"),
        *(
            (lambda g32, g64, scale, n=n: g32 <= 1e-5 * scale and g64 < n, "compare it with gap32")
            for n in (1e-13, 1e-12, 1e-10, 1e-8)
        ),
        (lambda g32, g64, scale: rounding(g32, 1e9 * g64, scale), "the correct cache on the small"),
        (lambda g32, g64, scale: "bug", "True or False, but your function returned 'bug'"),
        (lambda g32, g64, scale: rounding(g32, g64, scale) or None, "returned nothing"),
    ],
)
def test_is_rounding_wrong(wrong, hint):
    feedback = exercises.is_rounding(wrong)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message
    assert feedback.message.startswith("gap32 ") and len(feedback.hints) == 2


def test_is_rounding_calls_fewer_bits_over_the_gate_and_not_no_rounding():
    message = exercises.is_rounding(lambda g32, g64, scale: g64 <= 1e-6 * g32).message
    assert message.startswith("gap32 0.02, gap64 3e-11, scale 31.9: your answer is True, expected")
    assert "It's over this course's gate" in message and "no rounding" not in message


def test_is_rounding_names_the_case_that_raises():
    feedback = exercises.is_rounding(lambda g32, g64, scale: g32 <= scale / 1e5 and g32 / g64 > 1e6)
    assert feedback.message.startswith("gap32 0, gap64 0, scale 5: your function raised ZeroDiv")


def test_in_float64_rounding_falls_and_a_bug_does_not_move():
    right, wide = (logit_gap(dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert 0 < right.size <= 1e-5 * right.scale and wide.size <= 1e-7 * right.size
    for fault in (faults.kept_in_float16, faults.position_counted_twice):
        sizes = [logit_gap(*fault[2:4], dtype=d).size for d in (torch.float32, torch.float64)]
        assert 0.5 < sizes[0] / sizes[1] < 2 and sizes[0] > 1e-5 * right.scale


# -- 06: X, Y and Z ------------------------------------------------------------------------------

ANSWERS = {"X": "wrong order", "Y": "position counted twice", "Z": "cache never read"}
OPEN = {"X": ..., "Y": ..., "Z": ...}


def test_diagnose_solved():
    assert exercises.diagnose(OPEN).state == "not done yet"
    assert exercises.diagnose(ANSWERS).passed
    assert exercises.diagnose(ANSWERS | {"X": "keys and values in front"}).passed


@pytest.mark.parametrize(
    "answer",
    [
        "Keys and values in front",
        " keys_and_values_in_front",
        "keys-and-values-in-front.",
        faults.keys_and_values_in_front,
        faults.keys_and_values_in_front.forge_class,
        "WRONG ORDER",
    ],
)
def test_diagnose_takes_a_name_in_any_form(answer):
    assert exercises.diagnose(ANSWERS | {"X": answer}).passed


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"X": "fine"}, "Feed it 3 + 1 + 2"),
        ({"X": "Fine."}, "Feed it 3 + 1 + 2"),
        ({"X": "precision"}, "more than rounding"),
        ({"X": "keys in front"}, "the text would break"),
        ({"X": "keys and values reversed"}, "only the newest column"),
        ({"Y": "precision"}, "Rounding would change the values too"),
        ({"Y": "fine"}, "equal for this prompt"),
        ({"Y": faults.position_restarts}, "break this text"),
        ({"Y": "counter left behind"}, "Y's don't"),
        ({"Z": "fine"}, "count the rows"),
        ({"Y": "written twice"}, "which check tells the two apart"),
        ({"Y": "off by one"}, "'off by one' is no fault in the picture"),
        ({"Y": 3}, "int is no fault in the picture"),
    ],
)
def test_diagnose_wrong(wrong, hint):
    feedback = exercises.diagnose(ANSWERS | wrong)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message
    others = " and ".join(name for name in ANSWERS if name not in wrong)
    assert feedback.message.endswith(f"\n{others} are right.") and len(feedback.hints) == 2


def test_each_diagnosis_is_judged_by_itself():
    said = exercises.diagnose(OPEN | {"X": "wrong order"})
    assert repr(said) == "· not done yet: X is right; Y and Z are still to be named"
    said = exercises.diagnose(OPEN | {"X": "fine", "Y": "position counted twice"})
    assert said.message.startswith("X isn't 'fine'. Its tokens and logits are.")
    assert said.message.endswith("\nY is right; Z is still to be named.")
    said = exercises.diagnose({"X": "fine", "Y": "fine", "Z": "fine"})
    assert [line[:2] for line in said.message.splitlines()] == ["X ", "Y ", "Z "]


@pytest.mark.parametrize("name", ["kept in float16", "kept in bfloat16", "kept in 8 bits"])
def test_every_name_of_the_precision_group_has_its_hint(name):
    for which, hint in (("X", "more than rounding"), ("Y", "Rounding would change the values")):
        assert hint in exercises.diagnose(OPEN | {which: name}).message


def fix(broken, name, method=None):
    """A subclass that overrides one method, with the correct one if none is given."""
    return type(f"Fixed{broken.__name__}", (broken,), {name: method or getattr(Forge, name)})


RIGHT = {"X": fix(X, "append"), "Y": fix(Y, "positions"), "Z": fix(Z, "forward")}
BROKEN = {"X": X, "Y": Y, "Z": Z}


def in_notebook_06(name, change=str):
    """The names that the cell of 06 with this class defines, its source changed before."""
    cells = read(ROOT / "notebooks" / "06-break-the-cache.ipynb").cells
    (source,) = (cell.source for cell in cells if f"class {name}(" in cell.source)
    assert change is str or change(source) != source
    names = {"torch": torch, "kv": kvviz}
    exec(change(source), names)
    return names


def test_fixed_solved():
    feedback = exercises.fixed(**RIGHT)
    assert feedback.passed and feedback.picture is not None and not feedback.hints


def test_the_methods_to_fix_are_as_broken_as_before():
    classes = {name: in_notebook_06("FixedX")[f"Fixed{name}"] for name in "XYZ"}
    for name, kind in classes.items():
        assert issubclass(kind, BROKEN[name]) and len(vars(kind)) == len(vars(RIGHT[name]))
        ours, theirs = check_cache(KVCache, kind), check_cache(KVCache, BROKEN[name])
        assert (ours.headline, ours.cause) == (theirs.headline, theirs.cause)
    feedback = exercises.fixed(**classes)
    says = "X, Y and Z are still to be fixed: they're as broken as before"
    assert repr(feedback) == f"· not done yet: {says}" and len(feedback.hints) == 2


@pytest.mark.parametrize("kind", [X, fix(X, "append", stub), ..., None])
def test_each_fix_is_judged_by_itself(kind):
    feedback = exercises.fixed(**RIGHT | {"X": kind})
    says = "Y and Z are right; X is still to be fixed: it's as broken as before"
    assert repr(feedback) == f"· not done yet: {says}"


def keys_only(self, past, new):
    entry = Forge.append(self, past, new)
    return entry if past is None else KVEntry(entry.keys, Forge.append(self, new, past).values)


@pytest.mark.parametrize(
    ("name", "kind", "cause", "says"),
    [
        ("X", fix(X, "append", keys_only), "keys apart from their values", "X: step 1: column 0"),
        (
            "Y",
            fix(Y, "positions", lambda self, t, held: torch.arange(t)),
            "position restarts",
            "offset",
        ),
        (
            "Y",
            fix(Y, "positions", lambda self, t, held: torch.arange(held, held + t) - 1),
            "position miscounted",
            "at position -1",
        ),
    ],
)
def test_fixed_wrong(name, kind, cause, says):
    feedback, verdict = exercises.fixed(**RIGHT | {name: kind}), check_cache(KVCache, kind)
    assert feedback.state == "not right yet" and re.search(says, feedback.message)
    assert feedback.message.startswith(f"{name}: {verdict.headline}. {verdict.advice}\n")
    assert feedback.message.endswith("are right.") and feedback.picture is not None
    assert verdict.cause == cause


def test_fixed_takes_a_subclass():
    for wrong in (Forge, Forge.small(), X.small()):
        feedback = exercises.fixed(**RIGHT | {"X": wrong})
        assert feedback.state == "not right yet"
        assert "class FixedX(kv.exercises.X)" in feedback.message


def test_answers_of_another_shape_are_an_error():
    with pytest.raises(ValueError, match=r"expected answers for X, Y and Z, got \['X'\]"):
        exercises.diagnose({"X": "fine"})
    with pytest.raises(ValueError, match="expected answers for X, Y and Z, got list"):
        exercises.diagnose(["fine", "fine", "fine"])
    with pytest.raises(ValueError, match=r"X=..., Y=... and Z=..., got \['X'\]"):
        exercises.fixed(X=X)


# -- 06: published code --------------------------------------------------------------------------


def published(change=str):
    """The class of 06, its `attend` changed."""
    return in_notebook_06("Published", change)["Published"]


def test_published_code_fails_in_chunks_alone_and_nobody_is_told_why():
    verdict = check_cache(KVCache, published())
    assert [finding.name for finding in verdict.findings if not finding.passed] == ["chunks"]
    feedback = exercises.repair(published())
    says = "it passes every check but chunks, as it did when published"
    assert repr(feedback) == f"· not done yet: {says}"
    assert len(feedback.hints) == 2 and "tril" not in " ".join(feedback.hints)


def test_published_code_repaired():
    feedback = exercises.repair(published(lambda s: s.replace("tril()", "tril(columns - t)")))
    assert feedback.passed and feedback.picture is not None and not feedback.hints


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("tril()", "tril(columns - t + 1)", "could see 1 position after its own"),
        ("t > 1", "t == columns", "could see what comes after"),
        ("tril()", "triu()", "step 0"),
        ("tril()", "tril(columns - t).missing", "raised AttributeError"),
    ],
)
def test_published_code_changed_for_the_worse(old, new, says):
    feedback = exercises.repair(published(lambda source: source.replace(old, new)))
    assert feedback.state == "not right yet" and says in feedback.message, feedback.message


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Forge, "still needs its own attend"),
        (type("Published", (Forge,), {}), "still needs its own attend"),
        (Forge.small(), "your class Published, but got Forge"),
        (KVCache, "your class Published, but got type"),
    ],
)
def test_repair_takes_the_class_itself(answer, says):
    feedback = exercises.repair(answer)
    assert feedback.state == "not right yet" and says in feedback.message
