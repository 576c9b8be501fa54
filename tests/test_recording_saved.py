"""A saved run is read back as it was, or refused: every field is checked against the others."""

import json

import numpy as np
import pytest
import small
import torch
from transformers import StaticCache

from kvviz.faults import GALLERY
from kvviz.recording.recorder import record
from kvviz.recording.run import Run
from kvviz.recording.step import KEEP


@pytest.fixture(scope="module")
def llama():
    return small.llama()


@torch.no_grad()
def static(model):
    cache = StaticCache(model.config, max_cache_len=16)
    for n in (7, 1, 2):
        model(small.prompt(n), cache=cache)


@torch.no_grad()
def padded(model):
    ids = small.prompt(7, n_batch=2)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    model.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0)


@torch.no_grad()
def embedded(model):
    embeds = model.get_input_embeddings()(small.prompt(5))
    model.generate(inputs_embeds=embeds, max_new_tokens=3, do_sample=False)


@torch.no_grad()
def cropped(model):
    cache = model(small.prompt(9), use_cache=True).cache
    cache.crop(-3)
    model(small.prompt(1), cache=cache)


def cached(model):
    small.cached_loop(model, small.prompt(6), 4)


def uncached(model):
    small.plain_loop(model, small.prompt(6), 3)


RUNS = [
    *((small.llama, loop) for loop in (cached, uncached, static, padded, embedded, cropped)),
    *((build, cached) for build in small.RECORDED[1:]),
    (small.gemma3n, cached),
    (small.mistral, static),
    (small.gemma3, static),
]


@pytest.mark.parametrize("keep", [(), ("attention",), tuple(KEEP)], ids=len)
@pytest.mark.parametrize(("build", "loop"), RUNS)
def test_a_run_is_read_back_as_it_was(build, loop, keep, tmp_path):
    model = build()
    with record(model, keep=keep) as run:
        loop(model)
    check_read_back(run, tmp_path)


@pytest.mark.parametrize("name", [name for name in GALLERY if name != "own key left out"])
def test_a_run_of_a_broken_cache_is_read_back_as_it_was(name, tmp_path):
    fault = GALLERY[name]
    forge, cache = fault.forge_class.small(), fault.cache_class(4)
    with record(forge) as run:
        for n in (3, 1, 1, 1):
            forge(small.prompt(n), cache)
    check_read_back(run, tmp_path)


def check_read_back(run, folder):
    loaded = Run.load(run.save(folder / "run.npz"))
    assert len(run) and repr(loaded) == repr(run)
    for step, other in zip(run, loaded, strict=True):
        for layer in step.layers:
            ours, theirs = step.square(layer, 0), other.square(layer, 0)
            assert ours.tokens == theirs.tokens and ours.column_states == theirs.column_states
            assert ours.weights is None or np.array_equal(ours.weights, theirs.weights, True)


# -- files that were changed -------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(meta, arrays) of a run of two sequences with everything kept."""
    model = small.llama(num_hidden_layers=2)
    with record(model, keep=tuple(KEEP)) as run:
        padded(model)
    with np.load(run.save(tmp_path_factory.mktemp("saved") / "run.npz")) as file:
        arrays = dict(file)
    return json.loads(str(arrays.pop("meta"))), arrays


def load_changed(saved, folder, change):
    meta, arrays = json.loads(json.dumps(saved[0])), dict(saved[1])
    change(meta, arrays)
    np.savez(folder / "run.npz", meta=json.dumps(meta), **arrays)
    return Run.load(folder / "run.npz")


COUNTS = {
    "held_before": [10**9, -1, 5, 2.0, None, "7"],
    "bytes": [-1, 0, "many", 1.5],
    "slots": [10**9, -1, 3, "many"],
    "before": [{}, {"0": 10**9, "1": 7}, {"0": -1, "1": 7}, {"0": 3, "1": 4}],
    "after": [{"0": 10**9}, {"0": -1}, {"-3": 8}, {"0": 1.5}],
    "rows_by_layer": [{}, {"0": 1}, {"0": 10**9, "1": 1}, {"0": 0, "1": 1}],
    "columns_by_layer": [{}, {"0": 8}, {"0": 10**9, "1": 8}, {"0": 7, "1": 8}],
    "widths_by_layer": [{}, {"0": [22, 22]}, {"0": [22], "1": [22, 22]}, {"0": 22, "1": [22, 22]}],
    "kv_heads_by_layer": [{}, {"0": 2}, {"0": 0, "1": 2}, {"0": 5, "1": 2}, {"0": 2.0, "1": 2}],
    "gaps": [{}, {"0": 0.0}, {"0": 0.0, "1": 0.0, "7": 0.0}, {"0": "small", "1": 0.0}],
    "cache": [-1, "many", 1.5, [0]],
    "parents": [[], [None], [[0, 0], [0, 7]], [[1, 0], None], [[-1, 0], None], [[0], None]],
}


@pytest.mark.parametrize(("name", "value"), [(name, v) for name in COUNTS for v in COUNTS[name]])
def test_a_count_that_disagrees_with_the_rest_is_refused(saved, tmp_path, name, value):
    def change(meta, _):
        meta["steps"][1][name] = value

    load_changed(saved, tmp_path, lambda *_: None)
    with pytest.raises(ValueError, match="not a recording that Run.save wrote"):
        load_changed(saved, tmp_path, change)


@pytest.mark.parametrize("change", ["one less", "one more axis", "another kind", "gone"])
def test_an_array_that_disagrees_with_the_rest_is_refused(saved, tmp_path, change):
    changes = {
        "one less": lambda array: array[..., 1:],
        "one more axis": lambda array: array[None],
        "another kind": lambda array: array.astype(np.float64),
    }
    spare = ("1/kept/logits", "2/kept/logits", "0/kept/logits") if change == "one less" else ()
    widths = ("keys", "values", "queries", "outputs") if change == "one less" else ()
    optional = ("kept/keys", "kept/values", "kept/queries", "kept/outputs", "kept/logits", "pads")
    for name in saved[1]:
        if name.startswith(spare) or any(f"kept/{width}" in name for width in widths):
            continue  # their last axis may have any size
        if change == "one less" and not saved[1][name].size:
            continue
        if change == "gone" and name.split("/", 1)[1].startswith(optional):
            continue

        def alter(_, arrays, name=name):
            array = arrays.pop(name)
            if change != "gone":
                arrays[name] = changes[change](array)

        with pytest.raises(ValueError, match="not a recording that Run.save wrote"):
            load_changed(saved, tmp_path, alter)
            pytest.fail(f"{name}, {change}")


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, _: meta.update(kvviz=99),
        lambda meta, _: meta.update(max_bytes=-1),
        lambda meta, _: meta["texts"].update(x="y"),
        lambda meta, _: meta["steps"].pop(),
        lambda meta, _: meta["steps"].append({}),
        lambda meta, _: meta.pop("steps"),
        lambda _, arrays: arrays.update({"7/token_ids": arrays["1/token_ids"]}),
        lambda _, arrays: arrays.update({"-1/token_ids": arrays["1/token_ids"]}),
        lambda _, arrays: arrays.update({"1/kept/secrets/0": arrays["1/token_ids"]}),
        lambda _, arrays: arrays.update({"1/token_ids": arrays["1/token_ids"] - 10**6}),
    ],
    ids=range(10),
)
def test_a_file_that_was_changed_is_refused(saved, tmp_path, change):
    with pytest.raises(ValueError, match="not a recording that Run.save wrote"):
        load_changed(saved, tmp_path, change)
