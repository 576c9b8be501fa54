"""What real models, caches and callers do: recorded right, or refused by name with the reason."""

import contextlib
from inspect import signature

import numpy as np
import pytest
import small
import torch
import transformers as tf
import zoo
from transformers import AttentionInterface, DynamicCache, QuantizedCache, StaticCache

from kvviz.drawing.figures import draw_step
from kvviz.drawing.sentences import list_numbers, percent
from kvviz.faults import GALLERY
from kvviz.forge import Forge, KVCache
from kvviz.recording import cache_state
from kvviz.recording.recorder import record
from kvviz.recording.run import Run
from kvviz.recording.step import KEEP

EVERYTHING = tuple(KEEP)


@pytest.fixture(scope="module")
def llama():
    return small.llama()


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def states(step, layer=0, sequence=0):
    return step.square(layer, 0, sequence).column_states


# -- the settings are the model's own ----------------------------------------------------------


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("raised", [None, ZeroDivisionError, KeyboardInterrupt, Interrupted])
@pytest.mark.parametrize("keep", [(), EVERYTHING])
def test_what_was_changed_is_put_back_however_the_block_ends(llama, keep, raised):
    def state():
        return AttentionInterface.get_interface, llama.config._attn_implementation, {*vars(llama)}

    before = state()
    with contextlib.suppress(raised or ()), record(llama, keep=keep):
        llama(small.prompt(3))
        if raised is not None:
            raise raised
    assert state() == before
    with record(llama, keep=keep) as run:  # and it can be recorded again
        llama(small.prompt(3))
    assert run.rows == [3]


def test_recordings_of_two_models_may_end_in_any_order(llama):
    find, other = AttentionInterface.get_interface, small.gpt2()
    first, second = record(llama, keep=()), record(other, keep=())
    first.__enter__()
    run = second.__enter__()
    first.__exit__(None, None, None)
    other(small.prompt(3))
    second.__exit__(None, None, None)
    assert run.rows == [3] and AttentionInterface.get_interface is find
    compiled = torch.compile(lambda x: torch.compiler.is_compiling(), backend="eager")
    assert compiled(torch.ones(2))  # what is compiled runs compiled again


def test_the_setting_keeps_its_name_while_recording(llama):
    with record(llama, keep=()):
        assert llama.config._attn_implementation == "sdpa"
    with record(llama):
        assert llama.config._attn_implementation == "eager"


def test_the_decoder_inside_is_the_same_model(llama):
    twice = pytest.raises(ValueError, match="LlamaModel is being recorded already")
    with record(llama), twice, record(llama.model):
        pass


def test_a_sparse_model_keeps_its_index_mask():
    model, ids = zoo.build("DeepseekV32ForCausalLM"), small.prompt(9)
    bare = model(ids).logits
    with record(model, keep=()) as run:
        assert torch.equal(model(ids).logits, bare)
    with record(model) as run:
        assert (model(ids).logits - bare).abs().max() <= 1e-5 * bare.abs().max()
    assert (run[0].square(1, 0).weights[-1] > 0).sum() == 4  # index_topk


def test_generate_batch_says_what_to_use():
    model = small.llama()
    with (
        record(model) as run,
        pytest.raises(ValueError, match="generate_batch .* Use record_serving"),
    ):
        model.generate_batch([[5, 6, 7]], max_new_tokens=2)
    assert "init_continuous_batching" not in vars(model) and len(run) == 0


def test_compiled_code_is_recorded_as_it_is_written():
    model = small.llama()
    bare = small.cached_loop(model, small.prompt(5), 3)
    model.forward = torch.compile(model.forward, fullgraph=True)
    cache = StaticCache(model.config, max_cache_len=8)
    with record(model) as run:
        out = model.generate(small.prompt(5), max_new_tokens=3, do_sample=False, cache=cache)
    assert run.rows == [5, 1, 1] and torch.equal(out, bare)
    assert states(run[2]) == ("read",) * 6 + ("new", "empty")


def test_a_model_in_the_wrapper_of_torch_compile_is_recorded():
    model = torch.compile(small.llama(), backend="eager")
    with record(model) as run:
        small.cached_loop(model, small.prompt(5), 3)
    assert run.rows == [5, 1, 1]


def test_a_pass_that_was_interrupted_is_no_step_and_the_next_one_is(llama):
    def interrupt(*_):
        raise KeyboardInterrupt

    with record(llama) as run:
        handle = llama.model.layers[1].register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            llama(small.prompt(5))
        handle.remove()
        llama(small.prompt(4))
        llama(small.prompt(3))
    assert run.rows == [4, 3]


def test_logits_are_kept_from_a_tuple_too(llama):
    with record(llama, keep=("logits",)) as run:
        out = llama(small.prompt(5), return_dict=False)
        llama.model(small.prompt(5), return_dict=False)
    torch.testing.assert_close(run[0].logits, out[0][:, -1])
    assert "logits" not in run[1].kept


# -- masks and towers --------------------------------------------------------------------------


def test_a_mask_for_each_kind_of_layer():
    model = small.gemma3()
    bare = model.generate(small.prompt(7), max_new_tokens=5, do_sample=False)
    with record(model) as run:
        out = model.generate(
            small.prompt(7), max_new_tokens=5, do_sample=False, cache_implementation="static"
        )
    assert torch.equal(out, bare) and run.rows == [7, 1, 1, 1, 1]
    for step in run[1:]:
        for layer in step.layers:
            seen = step.column_positions(layer)
            tokens = [step.tokens()[p] for p in seen.tolist() if p >= 0]
            assert tokens == out[0, seen[seen >= 0]].tolist()


def test_a_mask_given_by_name():
    model = zoo.build("DogeForCausalLM")
    with record(model) as run:
        small.cached_loop(model, small.prompt(6), 3)
    assert states(run[2], 1) == ("read",) * 7 + ("new",)


def test_windows_beside_full_layers_know_their_tokens_at_every_step():
    model = small.gemma3()
    with record(model) as run:
        out = small.cached_loop(model, small.prompt(3), 7)
    for step in run[1:]:
        assert step.tokens() == out[0, : step.visible].tolist()
        assert states(step, 1) == ("read",) * step.held_before + ("new",)
        assert "earlier" not in states(step, 0) + states(step, 2)


def test_windows_beside_full_layers_are_recognised_across_both_loops():
    model = small.gemma3()
    with record(model) as run:
        small.plain_loop(model, small.prompt(7), 2)
        small.cached_loop(model, small.prompt(7), 2)
    assert set(states(run[2], 1)) == {"recomputed"}


def test_shared_keys_and_values_are_the_columns_seen():
    model = small.gemma3n()
    with record(model) as plain:
        small.plain_loop(model, small.prompt(7), 4)
    with record(model) as cached:
        small.cached_loop(model, small.prompt(7), 4)
    for layer in (3, 4):  # the last two use the keys and values of earlier layers
        ours, theirs = cached[3].square(layer, 0), plain[3].square(layer, 0)
        assert cached[3].column_positions(layer).tolist()[-1] == 9
        there = ~np.isnan(ours.weights[0])
        np.testing.assert_allclose(ours.weights[0, there], theirs.weights[-1, there], atol=1e-5)
        assert ours.weights[0, there].sum() == pytest.approx(1, abs=1e-4)
    assert "10 columns" in draw_step(cached, step=3, layer=4, head=0).sentence


def test_a_linear_first_layer():
    config = zoo.config("MiniMaxForCausalLM")
    config.layer_types = ["linear_attention", "full_attention", "linear_attention"]
    model = tf.MiniMaxForCausalLM(config).eval()
    with record(model) as run:
        small.cached_loop(model, small.prompt(6), 3)
    assert run[2].layers == (1,) and states(run[2], 1) == ("read",) * 7 + ("new",)
    assert draw_step(run, step=2).png()
    states_of = model(small.prompt(8), use_cache=True).cache.layers
    kept = [states_of[1].keys, states_of[1].values]
    assert run[2].bytes > sum(tensor.nbytes for tensor in kept)  # and the linear layers' states


def seeded(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


GRID = {"pixel_values": seeded(4, 3 * 2 * 14 * 14), "image_grid_thw": torch.tensor([[1, 2, 2]])}
IMAGES = {  # how many tokens an image takes, and what it is given as
    "LlavaForConditionalGeneration": (4, {"pixel_values": seeded(1, 3, 28, 28)}),
    "PaliGemmaForConditionalGeneration": (4, {"pixel_values": seeded(1, 3, 28, 28)}),
    "Gemma3ForConditionalGeneration": (4, {"pixel_values": seeded(1, 3, 28, 28)}),
    "Idefics3ForConditionalGeneration": (1, {"pixel_values": seeded(1, 1, 3, 28, 28)}),
    "InternVLForConditionalGeneration": (1, {"pixel_values": seeded(1, 3, 28, 28)}),
    "Qwen2_5_VLForConditionalGeneration": (1, GRID),
    "Glm4vForConditionalGeneration": (1, GRID),
}


@pytest.mark.parametrize("name", IMAGES)
def test_of_a_model_that_reads_images_the_language_model_is_recorded(name):
    model, (n_image, given) = zoo.build(name), IMAGES[name]
    text = small.prompt(9)
    ids = torch.cat([text[:, :3], torch.full((1, n_image), 2), text[:, 3:]], dim=1)
    kinds = {"token_type_ids", "mm_token_type_ids"} & set(signature(model.forward).parameters)
    given = given | {kind: (ids == 2).long() for kind in kinds}

    def run_model():
        return model(ids, **given).logits

    bare = run_model()
    with record(model, keep=()) as run:
        assert torch.equal(run_model(), bare)
    n_layers = model.config.get_text_config().num_hidden_layers
    assert run[0].layers == tuple(range(n_layers)) and run[0].tokens() == ids[0].tolist()
    with record(model) as run:
        assert (run_model() - bare).abs().max() <= 1e-5 * bare.abs().max()
    assert run[0].columns_by_layer == dict.fromkeys(range(n_layers), 9 + n_image)


# -- caches ------------------------------------------------------------------------------------


def crop_and_go_on(model, cache, ids):
    with record(model) as run:
        model(ids, cache=cache)
        cache.crop(-2)
        for seed in (7, 8):
            model(small.prompt(1, n_batch=len(ids), seed=seed), cache=cache)
    return run


@pytest.mark.parametrize("is_static", [False, True])
def test_a_cropped_cache_is_read(llama, is_static):
    ids = small.prompt(12, n_batch=2)
    config = llama.config
    cache = StaticCache(config, max_cache_len=16) if is_static else DynamicCache(config=config)
    run = crop_and_go_on(llama, cache, ids)
    assert [step.held_before for step in run] == [0, 10, 11]
    for n, step in enumerate(run[1:]):
        new = [small.prompt(1, n_batch=2, seed=seed) for seed in (7, 8)][: n + 1]
        text = torch.cat([ids[:, :10], *new], dim=1)
        for sequence in range(2):
            assert step.tokens(sequence) == text[sequence].tolist()
            expected = ("read",) * (10 + n) + ("new",) + ("empty",) * (5 - n) * is_static
            assert states(step, 1, sequence) == expected


def test_a_cropped_cache_of_many_steps_is_read(llama):
    """Cropped below several steps, and then what is held is as long as another step left it."""
    cache = DynamicCache(config=llama.config)
    with record(llama) as run:
        for n in (5, 2, 1, 3):
            llama(small.prompt(n, seed=n), cache=cache)
        cache.crop(-5)
        llama(small.prompt(1, seed=9), cache=cache)
    text = torch.cat([small.prompt(5, seed=5), small.prompt(2, seed=2)[:, :1]], dim=1)
    assert run[4].tokens() == [*text[0].tolist(), small.prompt(1, seed=9).item()]
    assert states(run[4]) == ("read",) * 6 + ("new",)


def test_a_cache_of_small_numbers_weighs_what_its_tensors_do(llama):
    cache = QuantizedCache("fp8", llama.config)
    with record(llama, keep=()) as run:
        for chunk in small.prompt(40).split([30, 10], dim=1):
            llama(chunk, cache=cache)
    assert run[1].bytes == 10_560 == 3 * 2 * 2 * 40 * 22  # one byte for each number


def test_a_cache_of_ones_own_is_read_through_its_get():
    class Layers:
        """It keeps its tensors in an attribute that the library's caches have too."""

        def __init__(self):
            self.layers = [{} for _ in range(4)]

        def get(self, layer):
            return self.layers[layer].get("entry")

        def update(self, layer, entry):
            self.layers[layer]["entry"] = entry

    forge, cache = Forge.small(), Layers()
    with record(forge) as run:
        forge(small.prompt(4), cache)
        forge(small.prompt(1), cache)
    assert states(run[1]) == ("read",) * 4 + ("new",) and run[1].held_after == 5
    assert run[1].bytes == 4 * 2 * 2 * 14 * 5 * 4


def test_bytes_that_cannot_be_found_are_not_known_and_never_zero(llama, tmp_path):
    class Sealed:
        __slots__ = ("tensor",)

    class Hidden:
        def get(self, _):
            return Sealed()

    assert cache_state.count_bytes(Hidden(), 3) is None
    with record(llama) as run:
        small.cached_loop(llama, small.prompt(4), 2)
    run[1].bytes = None
    loaded = Run.load(run.save(tmp_path / "run.npz"))
    assert "not known" in repr(loaded) and "not known" in loaded._repr_html_()
    assert "the cache holds" not in draw_step(loaded, step=1).sentence


def test_a_cache_that_cannot_be_read_is_refused_by_name(llama):
    with record(llama), pytest.raises(TypeError, match="object is unsupported: record reads a"):
        llama(small.prompt(3), cache=object())


# -- what is fed -------------------------------------------------------------------------------


def test_embeddings_are_read_though_their_ids_are_unknown(llama):
    embeds = llama.get_input_embeddings()(small.prompt(5))
    with record(llama) as run:
        llama.generate(inputs_embeds=embeds, max_new_tokens=3, do_sample=False)
    assert states(run[2]) == ("read",) * 6 + ("new",)
    assert run[2].tokens()[:5] == [-1] * 5 and -1 not in run[2].tokens()[5:]


@pytest.mark.parametrize(
    ("ids", "kind", "says"),
    [
        (torch.ones(1, 3), TypeError, "input_ids as a tensor of int64, got torch.float32"),
        ([[1, 2]], TypeError, "input_ids as a tensor of int64, got list"),
        (torch.tensor([1, 2]), ValueError, r"input_ids \(batch, tokens\), got \(2,\)"),
        (torch.ones(1, 0, dtype=torch.int64), ValueError, r"got \(1, 0\)"),
        (torch.tensor([[4, 101]]), ValueError, "input_ids from 0 to 100, got 101"),
        (torch.tensor([[4, -1]]), ValueError, "input_ids from 0 to 100, got -1"),
        (None, ValueError, "takes input_ids or inputs_embeds, but got neither"),
    ],
)
def test_wrong_ids_are_one_clear_error(llama, ids, kind, says):
    with record(llama) as run:
        with pytest.raises(kind, match=says):
            llama(ids)
        llama(small.prompt(3))
    assert run.rows == [3]


@pytest.mark.parametrize(
    "given",
    [
        ([[1, 2]],),
        (torch.tensor([1, 2]),),
        (torch.tensor([[4, 101]]),),
        (torch.ones(1, 3),),
        (small.prompt(98),),
        (small.prompt(2), KVCache(3)),
        (small.prompt(2), KVCache(5)),
        (small.prompt(2), []),
        (),
    ],
    ids=range(9),
)
def test_a_forges_own_errors_come_through(given):
    forge = Forge.small()
    with pytest.raises((TypeError, ValueError)) as bare:
        forge(*given)
    with record(forge) as run:
        with pytest.raises(type(bare.value)) as seen:
            forge(*given)
        forge(small.prompt(3))
    assert str(seen.value) == str(bare.value) and run.rows == [3]


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (dict(keep=3), TypeError, "keep takes any of attention, .* but got 3"),
        (dict(keep=[3]), ValueError, "keep takes any of attention, .* but got 3"),
        (dict(layers="1"), ValueError, "layers 0 to 2, but got '1'"),
        (dict(layers=1.5), ValueError, "layers 0 to 2, but got 1.5"),
        (dict(layers=True), ValueError, "layers 0 to 2, but got True"),
        (dict(max_bytes="1 GB"), ValueError, "max_bytes"),
    ],
)
def test_wrong_arguments_are_one_clear_error(llama, arguments, kind, says):
    with pytest.raises(kind, match=says), record(llama, **arguments):
        pass


# -- who is refused ----------------------------------------------------------------------------


def encoder(name, **sizes):
    config = getattr(tf, name).config_class
    return getattr(tf, name)(config(vocab_size=50, **sizes)).eval()


BERT = dict(hidden_size=24, num_attention_heads=2, num_hidden_layers=2, intermediate_size=8)
ENCODERS = {
    "BertModel": BERT,
    "BertForMaskedLM": BERT,
    "RobertaModel": BERT,
    "ModernBertModel": BERT | dict(pad_token_id=0),
    "DistilBertModel": dict(dim=24, n_heads=2, n_layers=2, hidden_dim=8),
    "CLIPTextModel": BERT,
    "ViTModel": BERT,
}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders_are_refused_by_name(name):
    model = encoder(name, **ENCODERS[name])
    with pytest.raises(ValueError, match=f"{name} cannot be recorded: .* causal decoder"):
        record(model).__enter__()


def test_an_encoder_made_a_decoder_is_recorded():
    model = encoder("BertLMHeadModel", **BERT, is_decoder=True)
    with record(model) as run:
        small.cached_loop(model, small.prompt(4) % 50, 3)
    assert run.rows == [4, 1, 1] and states(run[2]) == ("read",) * 5 + ("new",)


def test_a_layer_that_attends_twice_is_refused():
    model = zoo.build("HrmTextForCausalLM")
    with record(model, keep=()) as run, pytest.raises(ValueError, match="attends more than once"):
        model(small.prompt(4))
    assert len(run) == 0


def test_columns_that_are_no_positions_are_refused():
    model = zoo.build("DeepseekV4ForCausalLM")
    with record(model), pytest.raises(ValueError, match="DeepseekV4.* attends to 11 keys, where 9"):
        model(small.prompt(9))


def test_halves_of_a_layers_values_are_refused_when_asked_for():
    model = zoo.build("DiffLlamaForCausalLM")
    with record(model) as run:
        model(small.prompt(4))
    assert run.rows == [4]
    with record(model, keep=("values",)), pytest.raises(ValueError, match="keep neither values"):
        model(small.prompt(4))


def test_weights_of_fewer_columns_than_keys_are_refused():
    fault = GALLERY["own key left out"]
    forge, cache = fault.forge_class.small(), fault.cache_class(4)
    with record(forge) as run:
        forge(small.prompt(3), cache)
        with pytest.raises(ValueError, match=r"\(rows, columns\) \(1, 3\), where .* \(1, 4\)"):
            forge(small.prompt(1), cache)
    assert run.rows == [3]
    with record(forge, keep=()) as run:  # counts can be told
        forge(small.prompt(3), fault.cache_class(4))
    assert run.rows == [3]


# -- sinks -------------------------------------------------------------------------------------


def test_a_square_says_how_much_weight_went_to_no_column():
    model = small.gpt_oss()
    with record(model) as run:
        small.cached_loop(model, small.prompt(6), 3)
    square = run[2].square(1, 0)
    assert square.left_over(0) == pytest.approx(1 - np.nansum(square.weights[0]), abs=1e-6)
    assert 0.01 < square.left_over(0) < 0.99
    said = f"{percent(square.left_over(0))}% of its attention goes to a sink, which is no column"
    assert said in draw_step(run, step=2, layer=1).sentence and said in list_numbers(square)


def test_without_a_sink_no_weight_is_left_over(llama):
    with record(llama) as run:
        llama(small.prompt(6))
    assert [run[0].square(1, 0).left_over(row) for row in range(6)] == [0.0] * 6
    assert "sink" not in draw_step(run).sentence
    with record(llama, keep=()) as run:
        llama(small.prompt(6))
    assert run[0].square(1, 0).left_over(0) is None


def test_which_attention_ran_is_in_the_data():
    model, ids = small.llama(), small.prompt(5)
    setting = model.config._attn_implementation
    for keep, ran in ((("attention",), "eager"), ((), setting)):
        with record(model, keep=keep) as run, torch.no_grad():
            model(ids)
        assert run[0].implementation == run[0].square(0, 0).implementation == ran
    assert setting == "sdpa" == model.config._attn_implementation
