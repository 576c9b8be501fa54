"""Every fault differs from the right cache, and exactly in the checks where it should."""

from functools import cache

import pytest
import small
import torch

from kvviz.checking.cache import RightForge, judge_cache
from kvviz.faults import GALLERY
from kvviz.forge import Forge, KVCache

GATE = 1e-5  # largest gap allowed, over the largest number of the right result
CHECKS = ("tokens", "logits", "entries", "chunks", "work")
ALL_BUT_WORK = "tokens logits entries chunks"
# On the small model: which of the five checks catch each fault.
CAUGHT_BY = {
    "position restarts": ALL_BUT_WORK,
    "position counted twice": ALL_BUT_WORK,
    "counter left behind": "entries",  # all positions shifted equally: rotary logits don't change
    "keys stored before rotation": ALL_BUT_WORK,
    "keys rotated twice": ALL_BUT_WORK,
    "new token not appended": ALL_BUT_WORK,
    "own key left out": ALL_BUT_WORK,
    "keys in front": ALL_BUT_WORK,
    "keys and values in front": "entries chunks",
    "keys and values reversed": "entries chunks",
    "write never happens": ALL_BUT_WORK,
    "written twice": ALL_BUT_WORK,
    "moved but not rotated again": ALL_BUT_WORK,
    "keys and values swapped": ALL_BUT_WORK,
    "one slot for all layers": ALL_BUT_WORK,
    "stale cache": ALL_BUT_WORK,
    "prefill without a mask": ALL_BUT_WORK,
    "one query under a causal flag": ALL_BUT_WORK,
    "top left mask for a chunk": "chunks",
    "window nobody asked for": ALL_BUT_WORK,
    "first column dropped": ALL_BUT_WORK,
    "cache never read": "work",
    "kept in bfloat16": "logits entries chunks",
    "kept in float16": "logits entries chunks",
    "kept in 8 bits": "logits entries chunks",
    "scale along the wrong axis": "logits entries chunks",
}
DECODE, CHUNKS = [6] + [1] * 12, [3, 1, 2] * 3


def close(ours, right):
    return ours.shape == right.shape and (ours - right).abs().max() <= GATE * right.abs().max()


@cache
def right(seed):
    """Six tokens and twelve more, without a cache: their ids, logits and entries."""
    forge, ids, filled = Forge.small(seed), small.prompt(6, seed=seed), KVCache(4)
    for _ in range(12):
        ids = torch.cat([ids, forge(ids)[:, -1:].argmax(-1)], dim=1)
    return ids, forge(ids, filled), filled


class Trial:
    """One cache and one forge; before each text, the cache is filled with another one and reset."""

    def __init__(self, cache_class, forge_class, seed=0):
        self.cache_class, self.seed, self.rows = cache_class, seed, []
        self.forge = forge_class.small(seed)
        self.text, self.right_logits, self.right_cache = right(seed)
        attend = self.forge.attend

        def counting(layer, query, *rest):
            self.rows += [query.shape[2]] if layer == 0 else []
            return attend(layer, query, *rest)

        self.forge.attend = counting

    def used_cache(self):
        cache = self.cache_class(4)
        self.forge(small.prompt(7, seed=self.seed + 50), cache)
        cache.reset()
        self.rows.clear()
        return cache

    def fed(self, sizes):
        cache, pieces = self.used_cache(), self.text.split(sizes, dim=1)
        return torch.cat([self.forge(piece, cache) for piece in pieces], dim=1), cache

    def tokens(self):
        cache, made = self.used_cache(), [self.text[:, :6]]
        for _ in range(12):
            made.append(self.forge(made[-1], cache)[:, -1:].argmax(-1))
        return torch.equal(torch.cat(made, dim=1), self.text)

    def logits(self):
        return close(self.fed(DECODE)[0], self.right_logits)

    def entries(self):
        cache = self.fed(DECODE)[1]
        entries = [(cache.get(layer), self.right_cache.get(layer)) for layer in range(4)]
        return all(our and all(map(close, our, their)) for our, their in entries)

    def chunks(self):
        return close(self.fed(CHUNKS)[0], self.right_logits)

    def work(self):
        self.fed(DECODE)
        return self.rows == DECODE

    def caught_by(self):
        return " ".join(check for check in CHECKS if not getattr(self, check)())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_a_fault_is_caught_by_these_checks_and_no_others(fault, seed):
    found = Trial(fault.cache_class, fault.forge_class, seed).caught_by()
    assert found == CAUGHT_BY[fault.name]


@cache
def _reference():
    return RightForge(ids=small.prompt(6))


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_check_cache_finds_the_same(fault):
    """It was written independently of the trial here, and each uses its own text."""
    found = judge_cache(_reference(), fault.cache_class, fault.forge_class).findings
    caught = [check for check, one in zip(CHECKS, found, strict=True) if not one.passed]
    assert set(caught) - {"tokens"} == set(CAUGHT_BY[fault.name].split()) - {"tokens"}


@pytest.mark.parametrize("seed", range(7))
def test_no_check_catches_the_right_cache(seed):
    assert Trial(KVCache, Forge, seed).caught_by() == ""


def test_the_table_names_the_whole_gallery():
    assert set(CAUGHT_BY) == set(GALLERY) and len(GALLERY) == 26


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_a_fault_changes_one_method_and_says_what_it_is(fault):
    broken = [kind for kind in fault[2:4] if kind not in (KVCache, Forge)]
    assert len(broken) == 1 and broken[0].__base__ in (KVCache, Forge)
    own = [name for name in vars(broken[0]) if not name.startswith("__")]
    assert len(own) == 1 and own[0] in vars(broken[0].__base__)
    assert GALLERY[fault.name] is fault and broken[0].__doc__ == fault.says
    assert fault.says.endswith(".") and "\n" not in fault.says


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_without_a_cache_all_but_those_of_the_forward_pass_are_right(fault):
    forge, ids = fault.forge_class.small(), small.prompt(9)
    same = close(forge(ids), Forge.small()(ids))
    assert same == (fault.name not in ("prefill without a mask", "window nobody asked for"))


def test_a_group_looks_alike_in_the_first_decode_step():
    """Compare layer 0's entry after one decode step, with its keys sorted."""
    groups = {}
    for fault in GALLERY.values():
        groups.setdefault(fault.group, []).append(fault)
    assert {name: len(faults) for name, faults in groups.items() if len(faults) > 1} == {
        "key at position 0": 2,
        "own key missing": 2,
        "wrong order": 2,
        "mask from the top left": 2,
        "precision": 4,
    }

    def decoded(fault):
        forge, cache = fault.forge_class.small(), fault.cache_class(4)
        forge(small.prompt(6), cache)
        return forge(small.prompt(1, seed=1), cache), cache.get(0)

    (_, one), (_, other) = map(decoded, groups["key at position 0"])
    assert close(one.keys, other.keys) and close(one.values, other.values)
    (one, _), (other, _) = map(decoded, groups["own key missing"])
    assert close(one, other)
    (one, first), (other, last) = map(decoded, groups["wrong order"])
    assert close(one, other) and close(first.keys.sort(2).values, last.keys.sort(2).values)


def test_a_stale_cache_of_the_same_prompt_is_a_prompt_fed_twice():
    stale, forge, ids = GALLERY["stale cache"], Forge.small(), small.prompt(6)
    cache, right = stale.cache_class(4), KVCache(4)
    forge(ids, cache)
    cache.reset()
    forge(ids, right)
    assert torch.equal(forge(ids, cache), forge(ids, right)) and cache.held == right.held == 12


def test_faults_run_on_real_weights():
    from kvviz import faults

    model = small.llama(tie_word_embeddings=True)
    forge = faults.keys_in_front.forge_class.from_pretrained(model)
    theirs = {weight.data_ptr() for weight in model.parameters()}
    assert {weight.data_ptr() for weight in forge.parameters()} == theirs
