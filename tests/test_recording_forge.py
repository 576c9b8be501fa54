"""The forge is recorded as a model of the library is."""

import pytest
import small
import torch

from kvviz.drawing.figures import draw_step
from kvviz.faults import GALLERY
from kvviz.forge import Forge, KVCache
from kvviz.recording.recorder import record
from kvviz.recording.run import Run
from kvviz.recording.step import KEEP
from kvviz.widgets.stepper import stepper


def plain(forge, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, forge(ids)[:, -1:].argmax(-1)], dim=-1)
    return ids


def cached(forge, ids, n):
    cache = KVCache(len(forge.layers))
    logits = forge(ids, cache)
    for step in range(n):
        new = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=-1)
        if step < n - 1:
            logits = forge(new, cache)
    return ids


@pytest.fixture(scope="module")
def forge():
    return Forge.small()


def test_both_loops_are_recorded_and_nothing_stays_behind(forge):
    ids, before = small.prompt(6), dict(vars(forge))
    with record(forge, keep=tuple(KEEP)) as first:
        text = plain(forge, ids, 5)
    with record(forge, keep=tuple(KEEP)) as second:
        assert torch.equal(cached(forge, ids, 5), text)
    assert first.rows == [6, 7, 8, 9, 10] and second.rows == [6, 1, 1, 1, 1]
    assert [s.held_after for s in second] == [6, 7, 8, 9, 10]
    assert second[4].bytes == 4 * 2 * 2 * 14 * 10 * 4
    assert second[4].position_ids.tolist() == [[9]] and not first[4].cached
    assert first[4].square(3, 5).row_states == ("recomputed",) * 9 + ("new",)
    assert second[4].square(3, 5).column_states == ("read",) * 9 + ("new",)
    torch.testing.assert_close(first[4].attention[3][:, :, -1:], second[4].attention[3])
    assert max(gap for step in second for gap in step.gaps.values()) < 1e-5
    assert vars(forge).keys() == before.keys() and not forge._forward_hooks


def test_it_is_put_back_after_an_exception_and_not_recorded_twice(forge):
    with pytest.raises(ZeroDivisionError), record(forge):
        with pytest.raises(ValueError, match="being recorded already"), record(forge):
            pass
        raise ZeroDivisionError
    assert "attend" not in vars(forge) and not forge._forward_hooks


def test_chunks_are_recorded(forge):
    ids, cache = small.prompt(6), KVCache(len(forge.layers))
    with record(forge) as run:
        for chunk in ids.split([3, 1, 2], dim=1):
            forge(chunk, cache)
    assert run.rows == [3, 1, 2] and run[2].square(0, 0).row_positions == (4, 5)
    assert run[2].square(0, 0).masked.tolist() == [[False] * 5 + [True], [False] * 6]


def fed_to(name):
    fault = GALLERY[name]
    forge, cache = fault.forge_class.small(), fault.cache_class(4)
    with record(forge) as run:
        for ids in ([[17, 3, 88]], [[24]], [[71]]):
            forge(torch.tensor(ids), cache)
    return run


@pytest.mark.parametrize(
    ("name", "tokens", "new"),
    [
        ("keys and values in front", "71 24 17 3 88", 0),
        ("keys in front", "71 24 17 3 88", 0),
        ("written twice", "17 3 88 88 24 24 71", 6),
    ],
)
def test_a_column_is_named_by_its_key_wherever_it_stands(name, tokens, new, tmp_path):
    run = fed_to(name)
    square = run[2].square(1, 3)
    assert square.tokens == tuple(tokens.split()) and square.own_columns == (new,)
    assert [n for n, state in enumerate(square.column_states) if state == "new"] == [new]
    assert draw_step(run, step=2, layer=1, head=3).sentence.count("'71' attends most to") == 1
    loaded = Run.load(run.save(tmp_path / "run.npz"))
    assert loaded[2].square(1, 3).tokens == square.tokens


@pytest.mark.parametrize(
    ("name", "tokens", "new"),
    [
        ("keys and values in front", None, 0),
        ("keys in front", "17 3 88 24 71", 4),
        ("keys rotated twice", "17 3 88 24 71", 4),
    ],
)
def test_a_value_is_named_by_itself_wherever_its_key_stands(name, tokens, new, tmp_path):
    run = fed_to(name)
    loaded = Run.load(run.save(tmp_path / "run.npz"))
    for square in (run[2].square(1, 3), loaded[2].square(1, 3)):
        if tokens is None:
            assert square.value_tokens is None and square.value_states is None  # as the keys
        else:
            assert square.value_tokens == tuple(tokens.split()) != square.tokens
            expected = tuple("new" if n == new else "read" for n in range(5))
            assert square.value_states == expected != square.column_states


def test_the_right_cache_has_its_values_where_its_keys_are(forge):
    with record(forge) as run:
        cached(forge, small.prompt(6), 5)
    for step in run:
        square = step.square(1, 3)
        assert square.value_tokens is None and square.value_states is None
        assert step.lineage.key_order is None and step.lineage.value_order is None
        assert step.lineage.keys_known.all() and step.lineage.values_known.all()


def test_where_nothing_moved_nothing_is_kept_of_it():
    for step in fed_to("position restarts"):
        square = step.square(0, 0)
        assert step.lineage.key_order is None and square.own_columns == square.row_positions


def test_the_stepper_walks_both_loops(forge):
    with record(forge) as uncached:
        plain(forge, small.prompt(6), 4)
    with record(forge) as run:
        cached(forge, small.prompt(6), 4)
    walk = stepper(run, uncached, layer=3, head=5)
    assert "step 0, layer 3, head 5: 6 rows attend to 6 columns" in walk.sentence
    walk.step = 3
    assert "1 row attends to 9 columns" in walk.sentence and walk.frame.startswith(b"\x89PNG")
    walk.cached = False
    assert "9 rows attend to 9 columns" in walk.sentence


def test_the_default_models_weights_give_the_librarys_recording(default_model):
    model, tokenizer = default_model
    ids = tokenizer("The first law of motion states", return_tensors="pt").input_ids
    with record(model, keep=("attention", "keys")) as theirs:
        small.cached_loop(model, ids, 3)
    forge = Forge.from_pretrained(model)
    with record(forge, tokenizer, keep=("attention", "keys")) as ours:
        cached(forge, ids, 3)
    for a, b in zip(ours, theirs, strict=True):
        for layer in (0, 13, 29):
            torch.testing.assert_close(a.keys[layer], b.keys[layer], atol=2e-4, rtol=1e-4)
            torch.testing.assert_close(a.attention[layer], b.attention[layer], atol=1e-4, rtol=0)
