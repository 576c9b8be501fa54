"""`kv.check_cache`: every mistake is flagged and given no wrong name, and nothing right is."""

import time
from functools import cache, partialmethod

import odd_caches
import pytest
import small
import strangers
import torch

from kvviz.checking import cache as cache_room
from kvviz.checking import cache_rules
from kvviz.checking.cache import RightForge, check_cache, judge_cache
from kvviz.checking.causes import ADVICE
from kvviz.checking.columns import find_scale
from kvviz.drawing.picture import Picture
from kvviz.faults import GALLERY
from kvviz.forge import Forge, KVCache, KVEntry
from tools.faults import PAGE, page, rights

RIGHT = {"as it is": (KVCache, Forge)} | strangers.RIGHT | odd_caches.RIGHT
PATIENCE = 600  # seconds; only something that isn't stopped takes as long
HARMLESS = "harmless in decode, wrong for chunks: "


def findings(verdict):
    return {finding.name: finding.passed for finding in verdict.findings}


# -- what is right passes --------------------------------------------------------------------------

LENGTHS = (1, 2, 3, 5, 6, 8, 13, 21, 34, 55)
PROMPTS = [small.prompt(p, seed=p) for p in LENGTHS] + [small.prompt(200)]
PROMPTS += [torch.full((1, 7), 9), torch.tensor([[5, 6] * 4]), torch.tensor([[3, 3, 8, 3]])]
PROMPTS += [small.prompt(6)[:, [0, 1, 1, 0]]]
SIX = list(strangers.RIGHT)[:4] + list(strangers.RIGHT)[-1:] + ["as it is"]
SHAPES = {"a head each": 6, "three over one": 2, "six over one": 1}


@cache
def _model(n_kv_heads, dtype):
    sizes = dict(num_key_value_heads=n_kv_heads, n_positions=256)
    return small.llama(tie_word_embeddings=True, **sizes).to(dtype)


def _right(n_kv_heads, dtype, which):
    return RightForge(_model(n_kv_heads, dtype), PROMPTS[which], 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_kv_heads", SHAPES.values(), ids=SHAPES)
def test_no_false_alarm(n_kv_heads, dtype):
    """Every prompt; the classes take turns, so that each meets each model.

    In float64, where rounding is far from any limit, each prompt meets one of the shapes.
    """
    assert len(PROMPTS) == 15
    first, every = 0, 1
    if dtype == torch.float64:
        first, every = list(SHAPES.values()).index(n_kv_heads), len(SHAPES)
    for which in range(first, len(PROMPTS), every):
        ids = PROMPTS[which]
        name = SIX[(first + which // every) % len(SIX)]
        verdict = judge_cache(_right(n_kv_heads, dtype, which), *RIGHT[name])
        assert verdict.passed and len(verdict.findings) == 5, f"{name}, {ids}: {verdict}"


SEES_NOTHING = odd_caches.RIGHT["a forward that never calls attend"]
SEEN_RIGHT = {name: classes for name, classes in RIGHT.items() if classes != SEES_NOTHING}


@pytest.mark.parametrize("classes", SEEN_RIGHT.values(), ids=SEEN_RIGHT)
def test_what_is_right_is_told_so(classes):
    verdict = check_cache(*classes)
    assert verdict.mark == "✓"
    assert verdict.headline.startswith("equal in tokens, logits, keys and values, in chunks too")
    assert findings(verdict) == dict.fromkeys(
        ("tokens", "logits", "keys and values", "chunks", "work"), True
    )
    assert max(verdict.gaps.values()) < 1e-5


def test_keys_may_be_kept_before_rotation_where_attend_rotates_them():
    verdict = check_cache(forge_class=odd_caches.RotatesOnRead)
    assert verdict.passed and "keys are rotated when read" in verdict.headline
    assert findings(verdict)["keys and values"] is None
    assert all(findings(verdict)[name] for name in ("tokens", "logits", "chunks", "work"))
    assert "never calls attend" not in " ".join(verdict.remarks)


def test_what_was_tried_is_said():
    tried = "tried with at most 90 tokens held, after another prompt of the same length, "
    tried += "with two caches in turn, and with a batch of two"
    assert check_cache().remarks == (tried,)
    long = "tried with at most 96 tokens held"
    assert check_cache(ids=small.prompt(85)).remarks[0].startswith(long)


def test_a_forge_whose_attention_is_not_seen_passes_on_what_is():
    verdict = check_cache(*SEES_NOTHING)
    assert verdict.passed and "keys and values are not compared" in verdict.remarks[0]
    assert findings(verdict) | {"tokens": None, "logits": None, "chunks": None} == dict.fromkeys(
        findings(verdict)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_fewer_bits_is_judged_in_float32(dtype):
    model = small.llama(tie_word_embeddings=True).to(dtype)
    assert check_cache(model=model, n_new=4).passed
    precise = GALLERY["kept in float16"]
    assert check_cache(*precise[2:4], model=model, n_new=4).cause == "precision"


# -- what is wrong does not ------------------------------------------------------------------------


@cache
def _small(seed=None, n_new=12):
    return RightForge(ids=None if seed is None else small.prompt(6, seed=seed), n_new=n_new)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_a_fault_is_flagged_and_named(fault, seed):
    """In a short text; the page of faults has a longer one."""
    verdict = judge_cache(_small(seed, 5), fault.cache_class, fault.forge_class)
    assert not verdict.passed and verdict.cause in (fault.name, fault.group), verdict
    assert verdict.advice == ADVICE[verdict.cause]


REPEATED = [torch.full((1, 7), 9), torch.tensor([[5, 6] * 4])]
LENGTHS_TOO = [small.prompt(1), small.prompt(23)]


@pytest.mark.parametrize("number", range(len(GALLERY)), ids=list(GALLERY))
def test_a_fault_is_flagged_on_any_prompt_and_never_misnamed(number):
    """A text that repeats itself, and a very short or a longer one, in turn."""
    fault = list(GALLERY.values())[number]
    for ids in (REPEATED[number % 2], LENGTHS_TOO[number // 2 % 2]):
        verdict = check_cache(fault.cache_class, fault.forge_class, ids=ids, n_new=5)
        known = (fault.name, fault.group, "not recognised")
        assert not verdict.passed and verdict.cause in known, verdict


@pytest.mark.parametrize("wrong", strangers.WRONG, ids=lambda kind: kind.__name__)
def test_a_strangers_mistake_is_flagged_and_given_no_wrong_name(wrong):
    classes = (KVCache, wrong) if issubclass(wrong, Forge) else (wrong, Forge)
    verdict = judge_cache(_small(), *classes)
    assert not verdict.passed and verdict.cause == strangers.WRONG[wrong], verdict
    assert verdict.advice.startswith(ADVICE[verdict.cause])


SHOWN = {cause: wrong for wrong, (cause, _) in odd_caches.WRONG.items()}  # one of each kind


@pytest.mark.parametrize("wrong", odd_caches.WRONG, ids=lambda kind: kind.__name__)
def test_mistakes_that_look_alike_are_told_from_each_other(wrong, monkeypatch):
    draw_small = partialmethod(Picture.png, 0.5)  # whether it's sharp is asked elsewhere
    monkeypatch.setattr(Picture, "png", draw_small)
    cause, says = odd_caches.WRONG[wrong]
    classes = (KVCache, wrong) if issubclass(wrong, Forge) else (wrong, Forge)
    verdict = judge_cache(_small(), *classes)
    assert not verdict.passed and verdict.cause == cause and says in verdict.headline, verdict
    assert verdict.mark == "✗" and repr(verdict)
    assert wrong is not SHOWN[cause] or verdict._repr_html_()
    assert verdict.advice and len(verdict.advice.splitlines()) < 9


def test_the_page_of_faults_is_what_the_checks_say(default_model):
    """Small and default model; also: some fault is seen by one check alone."""
    written = page(rights(*default_model))
    assert written == PAGE.read_text(), "run: python -m tools.faults"
    assert len(GALLERY) >= 15 and "not recognised" not in written
    lines = [line.split(" | ") for line in written.splitlines() if "✓" in line][1:]
    assert len(lines) == len(GALLERY)
    caught = {tuple(line[first : first + 5]) for line in lines for first in (1, 6)}
    assert ("·", "·", "✓", "✓", "·") in caught  # tokens and logits equal, one token at a time
    assert ("·", "·", "·", "·", "✓") in caught  # only the work gives it away
    assert ("·", "·", "·", "✓", "·") in caught  # only a chunk does
    for name, *_, named, says in lines:
        fault = GALLERY[name.strip("| ")]
        assert named in (fault.name, fault.group) and says.strip(" |") == fault.says


@pytest.mark.parametrize("name", ["keys and values in front", "keys and values reversed"])
def test_a_cache_in_another_order_is_harmless_in_decode_and_wrong_for_chunks(name):
    verdict = check_cache(*GALLERY[name][2:4])
    assert verdict.headline.startswith(HARMLESS) and verdict.cause == "wrong order"
    seen = {"tokens": True, "logits": True, "keys and values": False, "chunks": False, "work": True}
    assert findings(verdict) == seen


def test_a_text_that_repeats_itself_hides_no_mistake():
    """Values all alike give the same blend wherever attention looks."""
    ids = torch.full((1, 7), 9)
    assert not any("another text" in remark for remark in check_cache(ids=ids).remarks)
    verdict = check_cache(*GALLERY["window nobody asked for"][2:4], ids=small.prompt(1))
    assert verdict.cause == "window nobody asked for" and "another text" in verdict.remarks[0]


def test_equal_logits_and_another_cache_is_said_to_be_harmless_to_the_text():
    verdict = check_cache(*GALLERY["counter left behind"][2:4])
    assert verdict.headline.startswith("harmless to the text: step 0: the token at position 0")
    assert "position 7" in verdict.headline


def test_the_first_difference_has_a_place():
    verdict = check_cache(*GALLERY["written twice"][2:4])
    assert (verdict.step, verdict.layer, verdict.position) == (1, 0, 5)
    late = check_cache(strangers.SwapsInOneLayer)
    assert late.layer == 2 and late.headline.startswith("step 1, layer 2: ")


def test_what_is_right_about_a_window_is_said():
    """Positions that are the text's, or distances that are right although all was renumbered."""
    own = check_cache(odd_caches.LastFour)
    right = "positions are right: the newest token was rotated for position 6"
    assert own.remarks == (right,) and f"Note: {right}" in repr(own)
    says = "positions 2 to 5 became positions 0 to 3, and all that is left was rotated for that"
    assert check_cache(odd_caches.LastFourRerotated).remarks[0].startswith(says)
    assert not check_cache(strangers.WindowOfEight).remarks
    repeated = check_cache(odd_caches.LastFour, ids=torch.full((1, 2), 9))
    assert not repeated.passed and len(repeated.remarks) <= 2


def test_a_window_that_never_drops_is_the_same_cache():
    class LastHundred(odd_caches.Drops):
        def keep(self, layer, n):
            return [*range(n)][-100:]

    assert check_cache(LastHundred).passed


# -- what cannot be judged -------------------------------------------------------------------------


class Stub(KVCache):
    def update(self, layer, entry):
        raise NotImplementedError


class Raises(KVCache):
    def get(self, layer):
        return self.entries[layer]


def test_a_stub_is_not_done_yet():
    verdict = check_cache(Stub)
    assert verdict.cause == "not done yet" and repr(verdict).startswith("· not done yet")


def test_an_exception_is_told_in_the_learners_lines():
    verdict = check_cache(Raises)
    assert verdict.headline.startswith("it raised AttributeError")
    assert "of get:  return self.entries[layer]" in verdict.advice
    assert "kvviz/" not in verdict.advice


BAD = {
    "cache_class: expected a class, got an instance": (TypeError, dict(cache_class=KVCache(4))),
    "forge_class: expected a subclass of Forge, got KVCache": (
        TypeError,
        dict(forge_class=KVCache),
    ),
    "n_new: expected a whole number of at least 3": (ValueError, dict(n_new=2)),
    "expected one prompt of shape": (
        ValueError,
        dict(ids=torch.ones(2, 3, dtype=torch.int64)),
    ),
    "at most 97 tokens, held and fed, got 98": (ValueError, dict(ids=small.prompt(90), n_new=9)),
    "expected a Llama": (ValueError, dict(model="llama")),
}


@pytest.mark.parametrize(("message", "given"), BAD.items(), ids=range(len(BAD)))
def test_bad_input_is_refused(message, given):
    error, arguments = given
    with pytest.raises(error, match=message):
        check_cache(**arguments)


class Shared(KVCache):
    slots = [None] * 4  # one list for all of them

    def __init__(self, n_layers):
        self._slots = self.slots

    def reset(self):
        self._slots[:] = [None] * 4


class LeavesOne(KVCache):
    def reset(self):
        self._slots[0] = None


class Empty(KVCache):
    def reset(self): ...


class TwoArguments(KVCache):
    def update(self, layer, keys, values):
        super().update(layer, KVEntry(keys, values))


class Missing:
    def __init__(self, n_layers): ...

    def get(self, layer): ...


def test_the_advice_says_what_to_look_at():
    said = {
        odd_caches.UpdateTakesThree: "`update` is called as update(layer, entry)",
        odd_caches.MadeOfNothing: "calling its class with the number of layers",
        odd_caches.NoKeyAtFirst: "At first, `get` must return None.",
        odd_caches.EvictsOneDay: 'of update:  raise NotImplementedError("evict")',
        odd_caches.LosesSinglesInOneLayer: "Then it raised RuntimeError: The size of tensor",
        odd_caches.HistoryReversed: "Nothing differs here, in chunks either",
        odd_caches.AsFloat64: "Then it raised RuntimeError: expected scalar type Float",
    }
    for kind, advice in said.items():
        assert advice in check_cache(kind).advice
    assert findings(check_cache(odd_caches.HistoryReversed))["chunks"]


class Forever(KVCache):
    def get(self, layer):
        while layer == 2 and self._slots[2]:
            pass
        return super().get(layer)


class ForeverCaught(KVCache):
    def get(self, layer):
        while layer == 2 and self._slots[2]:
            try:
                sum(range(1000))
            except Exception:
                continue
        return super().get(layer)


class Sleeps(KVCache):
    def reset(self):
        time.sleep(PATIENCE)


@pytest.mark.parametrize(
    ("kind", "where"),
    [(Forever, "in get(2), at step 1"), (ForeverCaught, "in get(2), at step 1"), (Sleeps, "in re")],
)
def test_a_check_ends_in_any_case(kind, where, monkeypatch):
    right = _small()
    for seconds in (1.5, 15, 150):  # a busy machine may not get that far at first
        monkeypatch.setattr(cache_room, "SECONDS", seconds)
        verdict = judge_cache(right, kind, Forge)
        assert verdict.cause == "does not end" and not verdict.passed
        assert verdict.headline.startswith(f"still running after {seconds} seconds, "), verdict
        if where in verdict.headline:
            return
    raise AssertionError(verdict)


class Louder(Forge):
    def forward(self, ids, cache=None):
        return 2 * super().forward(ids, cache)


def test_what_comes_after_attention_has_no_place():
    verdict = check_cache(forge_class=Louder)
    assert verdict.cause == "not recognised" and "nothing that attention saw" in verdict.headline
    assert (verdict.step, verdict.layer, verdict.position) == (None, None, None)


@pytest.mark.parametrize(
    ("wrong", "cause", "says"),
    [
        (Shared, "state shared between caches", "a second cache was filled"),
        (LeavesOne, "stale cache", "slots were not empty after a reset"),
        (Empty, "stale cache", "held 7 tokens before"),
        (Missing, "raised", "has no method 'update'"),
        (TwoArguments, "raised", "missing 1 required positional argument: 'values'"),
    ],
)
def test_slips_of_python_are_told_from_stubs(wrong, cause, says):
    verdict = check_cache(wrong)
    assert verdict.cause == cause and says in verdict.headline, verdict


def _both(past, new):
    return tuple(torch.cat([x, y], dim=2) for x, y in zip(past, new, strict=True))


class AppendsToATuple(Forge):
    def append(self, past, new):
        return new if past is None else _both(past, new)


class AppendsToAList(Forge):
    def append(self, past, new):
        return new if past is None else [*_both(past, new)]


class ListsPositions(Forge):
    def positions(self, t, held):
        return [*range(held, held + t)]


class TakesNoNumberOfLayers(KVCache):
    def __init__(self):
        super().__init__(4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (AppendsToATuple, "append returned tuple of Tensor, Tensor: return a KVEntry"),
        (AppendsToAList, "append returned list of Tensor, Tensor: return a KVEntry"),
        (ListsPositions, "positions returned list: return a tensor"),
        (TakesNoNumberOfLayers, "`__init__` must take n_layers"),
    ],
)
def test_what_a_method_takes_and_returns_is_said_and_not_our_own_error(wrong, says):
    classes = (KVCache, wrong) if issubclass(wrong, Forge) else (wrong, Forge)
    verdict = check_cache(*classes)
    assert not verdict.passed and says in verdict.headline, verdict
    assert "AttributeError" not in repr(verdict) and "list indices" not in repr(verdict)


class NotANumber(KVCache):
    def update(self, layer, entry):
        super().update(layer, KVEntry(entry.keys * float("nan"), entry.values))


def test_what_is_not_a_number_is_called_so():
    says = {finding.name: finding.says for finding in check_cache(NotANumber).findings}
    assert says["keys and values"] == "first at step 1, layer 0, position 0: not a number"


def test_a_cache_needs_only_get_update_and_reset():
    class Least:
        def __init__(self, n_layers):
            self.entries = [None] * n_layers

        def get(self, layer):
            return self.entries[layer]

        def update(self, layer, entry):
            self.entries[layer] = entry

        def reset(self):
            self.entries = [None] * len(self.entries)

    assert check_cache(Least).passed


# -- what is held and comes back a little changed --------------------------------------------------


def _changes(keys=lambda x: x, values=lambda x: x):
    """A cache class whose `update` stores something near what it was given."""

    class Changes(KVCache):
        def update(self, layer, entry):
            super().update(layer, KVEntry(keys(entry.keys), values(entry.values)))

    return Changes


def _scale(factor):
    return lambda x: x * factor


def _scale_newest(x):
    return torch.cat([x[:, :, :-1], x[:, :, -1:] * (1 + 1e-5)], dim=2)


def _ripple(x):
    return x * (1 + 4e-6 * torch.sin(torch.arange(x.shape[-1])))


CHANGED = {
    "keys by a millionth": (
        _changes(keys=_scale(1 + 1e-6)),
        "step 1: the keys that were held came back larger by 1 millionth",
    ),
    "keys by three": (
        _changes(keys=_scale(1 + 3e-6)),
        "step 1: the keys that were held came back larger by 3 millionths",
    ),
    "new keys only": (_changes(keys=_scale_newest), "step 1: the keys of position 5 that were"),
    "values by a millionth": (
        _changes(values=_scale(1 + 1e-6)),
        "step 1: the values that were held came back larger by 1 millionth",
    ),
    "values by thirty": (_changes(values=_scale(1 + 3e-5)), "came back larger by 30 millionths"),
    "both": (
        _changes(_scale(1 - 2e-6), _scale(1 - 2e-6)),
        "the keys and values that were held came back smaller by 2 millionths",
    ),
    "unevenly": (_changes(keys=_ripple), "the keys that were held came back changed, by up to "),
}


@pytest.mark.parametrize(("cache_class", "says"), CHANGED.values(), ids=CHANGED)
def test_a_little_change_in_what_is_held_is_no_mask_and_no_error(cache_class, says):
    verdict = check_cache(cache_class)
    assert verdict.cause == "held changed a little" and says in verdict.headline, verdict
    assert "StopIteration" not in repr(verdict) and verdict.step == 1


def test_few_numbers_are_whole_for_any_scale_and_say_nothing():
    """Of two numbers that share a scale and an offset, one is 0 and the other is the largest."""
    two = torch.randn(2, 2, 14, generator=torch.Generator().manual_seed(0))
    assert find_scale(two) is None and find_scale(two[:, :1]) is None
    three = odd_caches.in_whole_numbers(torch.cat([two, two[:, :1] / 3], 1), 127, 1)
    assert find_scale(three) == (8, "for each channel, over all tokens")
    shifted = torch.randint(0, 256, (2, 5, 14), generator=torch.Generator().manual_seed(0)).float()
    shifted[:, :, 0], shifted[:, :, 1] = 0, 255
    assert find_scale(shifted / 9 - 3) == (8, "for each token and head")


def test_one_row_that_may_see_everything_has_no_mask_to_miss():
    """An output that nothing explains is not recognised, however near it is."""

    class NearlyRight(Forge):
        def attend(self, layer, query, keys, values, mask):
            output, weights = super().attend(layer, query, keys, values, mask)
            return output * (1 + 5e-5 * (query.shape[2] == 1)), weights

    verdict = check_cache(forge_class=NearlyRight)
    assert verdict.cause == "not recognised" and "the output differs" in verdict.headline, verdict


def test_a_failure_of_the_check_is_not_shown_as_the_learners(monkeypatch):
    def fails(layer):
        return next(iter(()))

    monkeypatch.setitem(cache_rules.RULES, "columns", (fails,))
    monkeypatch.setitem(cache_rules.RULES, "queries", (fails,))
    verdict = check_cache(_changes(values=_scale(1.5)))
    assert verdict.cause == "not recognised" and not verdict.passed
    says = "this check could not judge your classes: RuntimeError"
    assert verdict.headline.startswith(says) and "raised RuntimeError" not in verdict.headline
