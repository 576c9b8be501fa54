import copy
import functools
import re
import warnings

import numpy as np
import pytest
import small
import torch
import zoo
from transformers import DynamicCache, StaticCache

from kvviz.recording.recorder import record
from kvviz.recording.run import Run
from kvviz.recording.step import KEEP

EVERYTHING = tuple(KEEP)


@functools.cache
def built(build):
    """A model built once: recording changes nothing in it."""
    return build()


@functools.cache
def doubled(build):
    return small.double(build)


@pytest.fixture(scope="module")
def llama():
    return built(small.llama)


def logits_of(loop, model, ids, n):
    """The logits of each forward pass the loop makes, without our recorder."""
    seen = []
    handle = model.register_forward_hook(lambda m, a, out: seen.append(out.logits[:, -1].clone()))
    loop(model, ids, n)
    handle.remove()
    return seen


# -- recording changes nothing -----------------------------------------------------------------


@pytest.mark.parametrize("loop", [small.plain_loop, small.cached_loop])
@pytest.mark.parametrize("build", small.RECORDED)
def test_logits_are_the_same_with_and_without_recording(build, loop):
    """To the bit where the same attention runs; keeping attention, the model's own eager one does.

    In float64 nothing is left of the rounding between the two, and 1e-6 is a wide gate.
    """
    model, ids = built(build), small.prompt(7)
    usual = model.config._attn_implementation
    without = logits_of(loop, model, ids, 5)
    with record(model, keep=()) as run:
        counted = logits_of(loop, model, ids, 5)
    assert len(run) == len(without) == 5
    assert all(torch.equal(a, b) for a, b in zip(without, counted, strict=True))

    with record(model, keep=EVERYTHING) as run:
        kept = logits_of(loop, model, ids, 5)
    gaps = [gap for step in run for gap in step.gaps.values()]
    assert len(gaps) == 5 * len(run[0].layers) and max(gaps) < 1e-5
    model.set_attn_implementation("eager")
    eager = logits_of(loop, model, ids, 5)
    model.set_attn_implementation(usual)
    assert all(torch.equal(a, b) for a, b in zip(eager, kept, strict=True))

    model = doubled(build)
    without = logits_of(loop, model, ids, 5)
    with record(model, keep=EVERYTHING):
        kept = logits_of(loop, model, ids, 5)
    for a, b in zip(without, kept, strict=True):
        assert (a - b).abs().max() <= 1e-6 * a.abs().max()


def state_of(model):
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    configs = [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]
    return hooks, configs, torch.get_rng_state().tolist()


@pytest.mark.parametrize("build", small.RECORDED)
def test_settings_hooks_and_random_state_are_put_back(build):
    model, ids = built(build), small.prompt(5)
    before = state_of(model)
    with record(model):
        small.cached_loop(model, ids, 3)
    assert state_of(model) == before
    with pytest.raises(ZeroDivisionError), record(model) as run:
        small.cached_loop(model, ids, 2)
        raise ZeroDivisionError
    assert state_of(model) == before and len(run) == 2


def test_a_pass_that_raises_is_not_a_step(llama):
    def fail(*_):
        raise RuntimeError("in the middle")

    with record(llama) as run:
        handle = llama.model.layers[1].register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            llama(small.prompt(5))
        handle.remove()
        llama(small.prompt(5))
    assert run.rows == [5]


# -- who is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("build", small.REFUSED)
def test_models_outside_the_interface_are_refused_by_name(build, caplog):
    model = build()
    before = state_of(model)
    with pytest.raises(ValueError, match=type(model).__name__), record(model):
        model(small.prompt(5))
    assert state_of(model) == before
    assert "attention implementation" not in caplog.text


def test_a_second_recording_inside_the_first_is_refused(llama):
    with record(llama) as run:
        with pytest.raises(ValueError, match="being recorded already"), record(llama):
            pass
        llama(small.prompt(5))
    assert len(run) == 1


def test_two_models_may_be_recorded_at_once(llama):
    other = built(small.gpt2)
    with record(llama) as first, record(other, keep=()) as second:
        llama(small.prompt(5))
        other(small.prompt(3))
    assert first.rows == [5] and second.rows == [3]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(keep="atention"), "attention, queries"),
        (dict(layers=[3]), "layers 0 to 2"),
        (dict(layers=[-1]), "layers 0 to 2"),
        (dict(layers=["1"]), "layers 0 to 2"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(llama, arguments, says):
    with pytest.raises(ValueError, match=says), record(llama, **arguments):
        pass


def test_what_is_not_a_model_is_refused():
    with pytest.raises(TypeError, match="but got {}"), record({}):
        pass


def test_a_mask_that_does_not_cover_the_cache_is_refused(llama):
    with torch.no_grad(), record(llama) as run:
        cache = llama(small.prompt(6)).cache
        with pytest.raises(ValueError, match="covers 1 position, but 6 .* and 1 fed take 7"):
            llama(small.prompt(1), cache=cache, attention_mask=torch.ones(1, 1))
    assert run.rows == [6]


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "OPTForCausalLM", "GPTJForCausalLM"])
def test_more_tokens_than_a_table_of_positions_has_is_refused(name):
    model = zoo.build(name)  # an embedding, one with two rows more, a tensor that is no weight
    with record(model, keep=()) as run:
        with pytest.raises(ValueError, match=f"{name} knows 97 positions"):
            model(small.prompt(98))
        model(small.prompt(97))
    assert run.rows == [97]


@pytest.mark.parametrize("scaling", ["default", "yarn"])
def test_positions_that_are_computed_have_no_end(scaling):
    """As in the library: only a table can be read past its end."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    if scaling == "yarn":
        rope |= {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    model = small.llama(n_positions=32, rope_parameters=rope)
    with record(model, keep=()) as run:
        small.cached_loop(model, small.prompt(38), 3)
    assert run.rows == [38, 1, 1]


# -- what a step says --------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "n"), [(1, 2), (5, 7), (20, 13)])
@pytest.mark.parametrize("build", small.RECORDED)
def test_rows_equal_the_formulas(build, p, n):
    model, ids = built(build), small.prompt(p)
    with record(model, keep=()) as plain:
        small.plain_loop(model, ids, n)
    with record(model, keep=()) as cached:
        small.cached_loop(model, ids, n)
    assert plain.rows == list(range(p, p + n))
    assert cached.rows == [p] + [1] * (n - 1)
    assert cached.positions == p + n - 1
    assert [s.held_after for s in cached] == list(range(p, p + n))
    assert [s.held_before for s in cached] == [0, *range(p, p + n - 1)]
    assert cached.cells == (p + n - 1) * (p + n) // 2
    assert plain.cells == sum((p + k) * (p + k + 1) // 2 for k in range(n))
    assert not any(step.cached for step in plain)


def test_generate_has_a_row_for_every_token_but_the_last(llama):
    with record(llama) as run:
        out = llama.generate(small.prompt(5), max_new_tokens=3, do_sample=False)
    assert out.shape[1] == 8
    assert run.rows == [5, 1, 1] and [s.visible for s in run] == [5, 6, 7]
    assert run[2].tokens() == out[0, :7].tolist()
    assert run[2].square(1, 5).column_states == ("read",) * 6 + ("new",)


def test_plain_steps_say_which_rows_were_computed_before(llama):
    with record(llama) as run:
        small.plain_loop(llama, small.prompt(5), 3)
    squares = [step.square(2, 1) for step in run]
    assert squares[0].column_states == ("new",) * 5
    assert squares[1].column_states == squares[1].row_states == ("recomputed",) * 5 + ("new",)
    assert squares[2].column_states == ("recomputed",) * 6 + ("new",)
    with record(llama) as other:
        llama(small.prompt(5))
        llama(small.prompt(6, seed=1))
    assert set(other[1].square(0, 0).column_states) == {"new"}


def test_a_row_is_only_said_to_be_recomputed_if_its_key_is_the_same(llama):
    ids = small.prompt(5)
    with record(llama) as run:
        llama(ids)
        llama(ids, attention_mask=torch.zeros(1, 1, 5, 5))  # sees the future: other keys
    assert run[1].square(0, 0).row_states[:4] == ("new",) * 4


@torch.no_grad()
def test_chunked_prefill(llama):
    ids, cache = small.prompt(6), DynamicCache(config=llama.config)
    with record(llama, keep=EVERYTHING) as run:
        for chunk in ids.split([3, 1, 2], dim=1):
            llama(chunk, cache=cache)
        whole = llama(ids).cache
    assert run.rows == [3, 1, 2, 6]
    assert [s.held_before for s in run] == [0, 3, 4, 0]
    square = run[2].square(1, 4)
    assert square.row_positions == (4, 5) and square.column_states == ("read",) * 4 + ("new",) * 2
    assert square.masked.tolist() == [[False] * 5 + [True], [False] * 6]
    np.testing.assert_allclose(square.weights, run[3].square(1, 4).weights[4:], atol=1e-5)
    torch.testing.assert_close(run[2].keys[1], whole.layers[1].keys, atol=1e-4, rtol=1e-4)
    assert set(run[3].square(0, 0).row_states) == {"recomputed"}


@torch.no_grad()
def test_a_static_cache_shows_its_empty_slots(llama):
    ids, cache = small.prompt(12), StaticCache(llama.config, max_cache_len=16)
    with record(llama) as run:
        llama(ids, cache=cache)
        for seed in range(4):
            llama(small.prompt(1, seed=seed), cache=cache)
        with pytest.raises(ValueError, match="16 slots, 16 of .*, and 1 more token can't fit"):
            llama(small.prompt(1), cache=cache)
    first, second = run[0].square(0, 0), run[1].square(0, 0)
    assert first.column_states == ("new",) * 12 + ("empty",) * 4
    assert second.column_states == ("read",) * 12 + ("new",) + ("empty",) * 3
    assert [s.held_after for s in run] == [12, 13, 14, 15, 16]
    assert run[1].slots == 16 and run[0].bytes == run[4].bytes == 3 * 2 * 2 * 16 * 22 * 4
    assert np.isnan(second.weights[0, 13:]).all() and second.weights[0, :13].sum() > 0.999


@torch.no_grad()
def test_a_left_padded_batch(llama):
    ids = small.prompt(7, n_batch=2)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    with record(llama) as run:
        llama.generate(ids, attention_mask=mask, max_new_tokens=3, do_sample=False, pad_token_id=0)
    with record(llama) as alone:
        small.cached_loop(llama, ids[1:, 3:], 3)
    padded, row = run[0].square(1, 3, sequence=1), run[2].square(1, 3, sequence=1)
    assert padded.column_states == ("pad",) * 3 + ("new",) * 4
    assert padded.row_states == ("pad",) * 3 + ("new",) * 4
    assert run[0].square(1, 3, sequence=0).column_states == ("new",) * 7
    assert row.column_states == ("pad",) * 3 + ("read",) * 5 + ("new",)
    assert run[2].position_ids.tolist() == [[8], [5]]
    expected = alone[2].square(1, 3).weights
    np.testing.assert_allclose(row.weights[:, 3:], expected, atol=1e-5)
    assert row.masked[0].tolist() == [True] * 3 + [False] * 6


def test_a_window_keeps_true_positions():
    model = built(small.mistral)
    with record(model) as run:
        small.cached_loop(model, small.prompt(7), 4)
    step = run[3]
    assert step.columns_by_layer[0] == 5 and step.visible == 10
    assert step.column_positions(0).tolist() == [5, 6, 7, 8, 9]
    square = step.square(0, 0)
    assert square.column_states == ("dropped",) * 5 + ("read",) * 4 + ("new",)
    assert np.isnan(square.weights[0, :5]).all()
    assert -1 not in step.tokens()


def test_layers_of_two_kinds_have_their_own_columns():
    model = built(small.gemma3)
    with record(model) as run:
        small.cached_loop(model, small.prompt(7), 4)
    assert run[3].columns_by_layer == {0: 5, 1: 10, 2: 5}
    assert "dropped" not in run[3].square(1, 0).column_states


def test_layers_without_keys_are_said_to_have_none():
    model = built(small.qwen3_next)
    with record(model) as run:
        small.cached_loop(model, small.prompt(5), 2)
    assert run[0].layers == (1,)
    with pytest.raises(ValueError, match="layer 0 has no keys and values here; .* do: 1"):
        run[0].square(0, 0)


def test_a_latent_cache_holds_less_than_attention_sees():
    model = built(small.deepseek_v3)
    with record(model, keep=("keys", "values")) as run:
        small.cached_loop(model, small.prompt(5), 2)
    assert run[1].keys[0].shape == (1, 3, 6, 12) and run[1].values[0].shape == (1, 3, 6, 8)
    assert run[1].bytes == 2 * 6 * (8 + 4) * 4


@torch.no_grad()
def test_a_cache_filled_before_the_recording_is_said_to_be_earlier(llama):
    cache = llama(small.prompt(4)).cache
    with record(llama) as run:
        llama(small.prompt(1), cache=cache)
        llama(small.prompt(1, seed=1), cache=cache)
    assert run[0].square(0, 0).column_states == ("earlier",) * 4 + ("new",)
    assert run[1].square(0, 0).column_states == ("earlier",) * 4 + ("read", "new")
    assert run[1].square(0, 0).tokens[:5] == ("?",) * 4 + (str(small.prompt(1)[0, 0].item()),)


@torch.no_grad()
def test_a_copied_cache_and_a_reordered_batch_are_recognised(llama):
    ids = small.prompt(4, n_batch=3)
    with record(llama) as run:
        cache = copy.deepcopy(llama(ids).cache)
        llama(small.prompt(4, seed=9))
        cache.reorder_cache(torch.tensor([2, 0, 1]))
        llama(small.prompt(1, n_batch=3), cache=cache)
    assert run[2].lineage.parents == [(0, 2), (0, 0), (0, 1)]
    assert run[2].tokens(0)[:4] == ids[2].tolist()


@torch.no_grad()
def test_a_value_that_changed_in_the_cache_is_not_said_to_be_read(llama):
    with record(llama) as run:
        cache = llama(small.prompt(4)).cache
        llama(small.prompt(1), cache=cache)
        for layer in cache.layers:
            layer.values[:, :, 2] += 1
        llama(small.prompt(1, seed=1), cache=cache)
    whole, changed = run[1].square(0, 0), run[2].square(0, 0)
    assert whole.value_states is None and whole.value_tokens is None  # as the keys
    assert changed.column_states == ("read",) * 5 + ("new",) and "?" not in changed.tokens
    assert changed.value_states == ("read", "read", "earlier", "read", "read", "new")
    assert changed.value_tokens == (*changed.tokens[:2], "?", *changed.tokens[3:])


@torch.no_grad()
def test_a_recording_holds_copies(llama):
    cache = DynamicCache(config=llama.config)
    with record(llama, keep=EVERYTHING) as run:
        llama(small.prompt(6), cache=cache)
        llama(small.prompt(1), cache=cache)
        kept = run[1].keys[0].clone()
        llama(small.prompt(1), cache=cache)
        cache.layers[0].keys.zero_()
    assert torch.equal(run[1].keys[0], kept) and run[1].held_after == 7
    assert [s.held_after for s in run] == [6, 7, 8]


def test_bfloat16_is_converted_once():
    model = small.llama().to(torch.bfloat16)
    with record(model, keep=EVERYTHING) as run:
        small.cached_loop(model, small.prompt(5), 2)
    kinds = {t.dtype for name in KEEP for t in run[1].kept[name].values()}
    assert kinds == {torch.float32}
    assert run[1].bytes == 3 * 2 * 2 * 6 * 22 * 2


def test_attention_is_recorded_whatever_the_setting():
    model = small.llama()
    model.set_attn_implementation("sdpa")
    with record(model, layers=[2]) as run:
        small.cached_loop(model, small.prompt(5), 2)
    assert model.config._attn_implementation == "sdpa"
    assert run[1].attention[2].shape == (1, 6, 1, 6)
    with pytest.raises(ValueError, match="layer 1: attention was kept of layers 2 only"):
        run[1].square(1, 0)
    with pytest.raises(ValueError, match="head 6: layer 2 has heads 0 to 5"):
        run[1].square(2, 6)
    with pytest.raises(AttributeError, match="keep=.'values',."):
        _ = run[1].values
    with pytest.raises(IndexError, match="steps 0 to 1"):
        run[2]


def test_counts_alone_still_make_a_square(llama):
    with record(llama, keep=()) as run:
        small.cached_loop(llama, small.prompt(5), 2)
    square = run[0].square(0, 0)
    assert square.weights is None and square.masked.sum() == 10


def test_the_limit_stops_a_recording_before_it_grows_past_it(llama):
    with record(llama, max_bytes=3000) as run, pytest.raises(MemoryError, match="2.93 KiB.*keep"):
        small.plain_loop(llama, small.prompt(5), 50)
    assert 0 < run.bytes_kept <= 3000
    with record(llama, keep=(), max_bytes=3000) as run:
        small.cached_loop(llama, small.prompt(5), 9)
    assert len(run) == 9


def test_the_old_argument_name_is_recorded_too(llama):
    with torch.no_grad(), record(llama) as run, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        cache = llama(small.prompt(5)).cache
        llama(small.prompt(1), past_key_values=cache)
    assert [s.held_after for s in run] == [5, 6]


# -- shown and kept ----------------------------------------------------------------------------


def test_a_run_survives_its_file(llama, tmp_path):
    with record(llama, keep=EVERYTHING, layers=[1]) as run:
        small.cached_loop(llama, small.prompt(5), 4)
    run.save(tmp_path / "run.npz")
    back = Run.load(tmp_path / "run.npz")
    assert repr(back) == repr(run) and back.rows == [5, 1, 1, 1]
    for step, other in zip(run, back, strict=True):
        ours, theirs = step.square(1, 2), other.square(1, 2)
        assert ours.tokens == theirs.tokens and ours.column_states == theirs.column_states
        np.testing.assert_array_equal(ours.weights, theirs.weights)
        assert torch.equal(step.keys[1], other.keys[1]) and torch.equal(step.logits, other.logits)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_file_that_is_no_recording_is_refused(llama, tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="not a recording"):
        Run.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        Run.load(tmp_path / "none.npz")
    with record(llama) as run:
        llama(small.prompt(3))
    with pytest.raises(ValueError, match=".npz"):
        run.save(tmp_path / "run.pickle")


@torch.no_grad()
def test_a_run_of_many_steps_still_knows_its_tokens():
    sizes = dict(hidden_size=22, num_attention_heads=1, num_key_value_heads=1)
    model = small.llama(n_positions=1101, num_hidden_layers=1, **sizes)
    with record(model, keep=()) as run:  # more steps than Python's limit of nested calls
        text = small.cached_loop(model, small.prompt(5), 1010)
    assert run[-1].tokens() == text[0, :-1].tolist()


def test_the_table_reads_the_same_as_text_and_as_html(llama):
    with record(llama, keep=()) as run:
        small.cached_loop(llama, small.prompt(5), 30)
    text, page = repr(run), run._repr_html_()
    assert "34 positions computed, 595 cells" in text and "34 positions" in page
    assert "... 19 more ..." in text and text.count("\n") == 13
    assert page.count("<tr>") == 13
    names = ["step", "fed", "visible", "held before", "held after", "bytes", "newest"]
    assert re.split("  +", text.splitlines()[0].strip()) == names
    assert re.findall('<th scope="col">(.*?)</th>', page) == names
