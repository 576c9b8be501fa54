import dataclasses
import functools
import math
import re
import subprocess
import sys

import numpy as np
import pytest
import small
import torch
import transformers as tf
from transformers import DynamicCache, StaticCache

from kvviz import count
from kvviz.models import load_config
from kvviz.recording import cache_state
from kvviz.recording.recorder import record

W = 5  # the window of those small models that have one
KINDS = {
    "multi-head": small.gpt2,
    "grouped": lambda: small.llama(hidden_size=72, head_dim=None),
    "multi-query": small.multi_query,
    "own head width": small.llama,
    "window": small.mistral,
    "mixed": small.gemma3,
    "mixed, two sizes": small.gemma4,
    "mixed, experts": small.gpt_oss,
    "latent": small.deepseek_v3,
    "linear mixed in": small.qwen3_next,
    "shared": small.gemma3n,
}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@functools.cache
def build(kind, dtype=torch.float32):
    """A model of this kind, built once: feeding it changes only its caches."""
    return small.in_dtype(KINDS[kind], dtype)


@torch.no_grad()
def feed(model, cache, *passes):
    """Feed two sequences of random tokens, `passes` rows at a time."""
    for ids in small.prompt(sum(passes), n_batch=2).split(passes, dim=1):
        model(ids, cache=cache, use_cache=True)
    return cache


def held_in(cache):
    return cache_state.count_bytes(cache, len(cache.layers))


def allocated_in(cache):
    tensors = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    return sum(part.untyped_storage().nbytes() for part in tensors)


def test_twenty_and_two_hundred():
    plain = dict(cached=False)
    assert count.positions(20, 200, **plain) == sum(range(20, 220)) == 23_900
    assert count.positions(20, 200, cached=True) == 20 + 199 == 219
    assert round(23_900 / 219) == 109
    assert count.cells(20, 200, **plain) == 1_773_300
    assert count.cells(20, 200, cached=True) == 219 * 220 // 2 == 24_090


@pytest.mark.parametrize(("prompt", "new"), [(1, 0), (1, 1), (7, 1), (5, 0), (6, 13)])
@pytest.mark.parametrize("cached", [False, True])
def test_counts_equal_a_recording(prompt, new, cached):
    model = build("own head width")
    with record(model, keep=()) as run:
        (small.cached_loop if cached else small.plain_loop)(model, small.prompt(prompt), new)
    # A loop that needs no new token may still run the prompt; we count only what is needed.
    expected = run.rows if new else []
    assert count.rows(prompt, new, cached=cached) == expected
    assert count.positions(prompt, new, cached=cached) == sum(expected)
    assert count.cells(prompt, new, cached=cached) == (run.cells if new else 0)


# whole numbers and scales


def quantised(x, bits, group):
    """Tensors that hold x, (B, G, kept, D) or (B, kept, n), with a scale for each group."""
    lines = x.reshape(-1, group)
    scales = lines.abs().amax(-1, keepdim=True)
    whole = (lines / scales * 7).round().to(torch.int8).flatten()
    return (whole[::2] & 15 | whole[1::2] << 4 if bits == 4 else whole), scales


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("recent", [0, 6])
@pytest.mark.parametrize("kind", ["grouped", "own head width", "mixed", "latent", "window"])
def test_bytes_of_whole_numbers_and_scales_are_those_of_the_tensors(kind, bits, recent):
    model, held, total = build(kind), 13, 0
    layers = feed(model, DynamicCache(config=model.config), held).layers
    numbers = {layer.layer: layer.per_token for layer in count.layers(model.config)}
    group = functools.reduce(math.gcd, numbers.values())
    for n, layer in enumerate(layers):
        # Keys and values of the library's cache, as one row of numbers per token and sequence.
        parts = [part.transpose(1, 2).flatten(2) for part in (layer.keys, layer.values)]
        kept = torch.cat(parts, dim=2)[:, :, : numbers[n]]
        floats = min(recent, kept.shape[1])
        old, new = kept.split([kept.shape[1] - floats, floats], dim=1)
        total += sum(part.nbytes for part in quantised(old, bits, group)) if old.numel() else 0
        total += new.numel() * new.element_size()
    sizes = dict(bits=bits, group=group, recent=recent, batch_size=2)
    assert count.quantised_bytes(model.config, held, **sizes) == total > 0


def test_scales_are_counted_and_can_be_smaller_or_with_zero_points():
    config, numbers = build("own head width").config, 64 * 3 * 2 * 2 * 22
    for scale_bytes in (4, 2, 8, 0):
        found = count.quantised_bytes(config, 64, bits=4, group=22, scale_bytes=scale_bytes)
        assert found == numbers / 2 + numbers // 22 * scale_bytes
    without = count.cache_bytes(config, 64, bytes_per_number=0.5)
    assert count.quantised_bytes(config, 64, bits=4, group=22, scale_bytes=0) == without


def test_states_of_linear_layers_stay_floats():
    config = build("linear mixed in").config
    states = count.cache_bytes(config, 8) - 8 * count.bytes_per_token(config)
    kept = [layer.per_token for layer in count.layers(config) if layer.per_token]
    found = count.quantised_bytes(config, 8, bits=8, group=2, scale_bytes=2)
    assert found == states + 8 * sum(kept) * 2 and states > 0
    assert count.quantised_bytes(config, 0, bits=8) == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (dict(bits=0), "bits: expected a number above 0, but got 0"),
        (dict(bits="8"), "bits: expected"),
        (
            dict(group=5),
            r"group: expected a divisor of the 264 whole numbers in layer 0, but got 5",
        ),
        (dict(group=0), "group"),
        (dict(recent=4), "recent: expected at most the 3 tokens held, but got 4"),
        (dict(recent=-1), "recent"),
        (dict(scale_bytes=-1), "scale_bytes: expected"),
        (dict(batch_size=0), "batch_size"),
        (dict(bytes_per_number=0), "bytes_per_number: expected"),
    ],
)
def test_whole_numbers_that_make_no_sense_are_refused(changes, says):
    config = build("own head width").config
    with pytest.raises(ValueError, match=says):
        count.quantised_bytes(config, 3, **{"bits": 8, "group": 22, **changes})


# held


@every_kind
@both_dtypes
def test_counted_bytes_are_those_of_the_tensors_after_one_pass(kind, dtype):
    model = build(kind, dtype)
    how = dict(batch_size=2, bytes_per_number=dtype.itemsize)
    for held in (1, W - 1, W, W + 1, 13, 8 * W):
        cache = feed(model, DynamicCache(config=model.config), held)
        assert count.cache_bytes(model.config, held, **how) == held_in(cache), held


@every_kind
@both_dtypes
def test_counted_bytes_are_those_of_the_tensors_after_every_step(kind, dtype):
    model = build(kind, dtype)
    cache = DynamicCache(config=model.config)
    how = dict(batch_size=2, bytes_per_number=dtype.itemsize)
    assert count.cache_bytes(model.config, 0, **how) == held_in(cache) == 0
    for held in range(1, 2 * W + 2):
        feed(model, cache, 1)
        assert count.cache_bytes(model.config, held, **how) == held_in(cache), held


@torch.no_grad()
def test_falcon_of_the_new_kind_holds_a_copy_for_each_query_head():
    sizes = dict(hidden_size=60, num_attention_heads=6, num_hidden_layers=2, vocab_size=101)
    config = tf.FalconConfig(**sizes, new_decoder_architecture=True, num_kv_heads=2)
    cache = tf.FalconForCausalLM(config).eval()(small.prompt(5)).cache
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert count.cache_bytes(config, 5) == held == 2 * 2 * 6 * 5 * 10 * 4


def test_falcon_says_multi_query_with_a_flag():
    model = small.falcon()
    cache = feed(model, DynamicCache(config=model.config), 7)
    assert count.cache_bytes(model.config, 7, batch_size=2) == held_in(cache)
    assert count.bytes_per_token(model.config) == 2 * 2 * 22 * 4
    model.config.new_decoder_architecture = True
    assert count.bytes_per_token(model.config) == 2 * 2 * 66 * 4


# what each layer keeps


def test_layers_say_what_each_of_them_keeps():
    local = dict(kind="sliding_attention", per_token=2 * 3 * 22, window=W)
    full = dict(kind="full_attention", per_token=2 * 2 * 32)
    expected = [count.LayerCache(n, **(full if n % 2 else local)) for n in range(4)]
    assert count.layers(build("mixed, two sizes").config) == expected


def test_layers_that_use_earlier_ones_keep_nothing():
    assert [kept.layer for kept in count.layers(build("shared").config)] == [0, 1, 2]


def test_linear_layers_keep_two_states_of_constant_size():
    config = build("linear mixed in").config
    linear = dict(kind="linear_attention", conv=4 * (2 * 2 * 14 + 4 * 14), recurrent=4 * 14 * 14)
    full = dict(kind="full_attention", per_token=2 * 2 * 22)
    expected = [count.LayerCache(n, **(full if n == 1 else linear)) for n in range(3)]
    assert count.layers(config) == expected
    assert count.bytes_per_token(config) == 2 * 2 * 22 * 4
    states = 2 * (448 + 784) * 4
    assert count.cache_bytes(config, 1) == 88 * 4 + states
    assert count.cache_bytes(config, 1000) == 1000 * 88 * 4 + states


def test_recurrent_states_are_float32_whatever_the_rest_is():
    config = build("linear mixed in").config
    for size in (2, 1, 0.5):
        expected = 7 * 88 * size + 2 * 448 * size + 2 * 784 * 4
        assert count.cache_bytes(config, 7, bytes_per_number=size) == expected


def test_a_chunk_is_a_window():
    config = tf.Llama4TextConfig(num_hidden_layers=4, attention_chunk_size=W)
    windows = [kept.window for kept in count.layers(config)]
    assert windows == [W, W, W, None]


def test_a_window_that_is_switched_off_does_not_count():
    sizes = dict(num_hidden_layers=3, hidden_size=66, num_attention_heads=3, sliding_window=W)
    off, on = (tf.Qwen2Config(**sizes, use_sliding_window=use) for use in (False, True))
    assert {kept.window for kept in count.layers(off)} == {None}
    on.layer_types = ["full_attention", "sliding_attention", "sliding_attention"]
    assert [kept.window for kept in count.layers(on)] == [None, W, W]


def test_a_layer_cache_is_not_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        count.layers(build("own head width").config)[0].per_token = 1


# allocated


@every_kind
@both_dtypes
def test_a_preallocated_cache_is_counted_by_its_slots(kind, dtype):
    model = build(kind, dtype)
    how = dict(batch_size=2, bytes_per_number=dtype.itemsize)
    for slots in (3, W - 1, W, W + 1, 8 * W):
        cache = feed(model, StaticCache(config=model.config, max_cache_len=slots), 2, 1)
        assert count.allocated_bytes(model.config, slots, **how) == held_in(cache), slots


def test_a_full_window_needs_one_token_less_than_is_preallocated():
    config = build("window").config
    assert count.cache_bytes(config, 100) == (W - 1) * count.bytes_per_token(config)
    assert count.allocated_bytes(config, 100) == W * count.bytes_per_token(config)


def test_a_growing_window_has_allocated_more_than_it_holds():
    model = build("window")
    token = 2 * count.bytes_per_token(model.config)  # of two sequences
    cache = DynamicCache(config=model.config)
    for passes, allocated in [((8 * W,), 8 * W), ((1,), W), ((1,), W), ((3,), W - 1 + 3)]:
        feed(model, cache, *passes)
        assert held_in(cache) == (W - 1) * token
        assert allocated_in(cache) == allocated * token


def test_a_growing_cache_without_a_window_has_allocated_what_it_holds():
    model = build("own head width")
    cache = DynamicCache(config=model.config)
    for passes in [(13,), (1,), (3,)]:
        feed(model, cache, *passes)
        assert allocated_in(cache) == held_in(cache)


# published sizes, by hand

LLAMA = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096}
LLAMA |= {"num_attention_heads": 32}
SMOLLM2 = {"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576}
DEEPSEEK_V3 = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "kv_lora_rank": 512}
PUBLISHED = {
    "Llama-2-7B": (LLAMA, 2, 524_288),
    "Llama-3.1-8B": (LLAMA | {"num_key_value_heads": 8}, 2, 131_072),
    "DeepSeek-V3": (DEEPSEEK_V3 | {"qk_rope_head_dim": 64}, 2, 70_272),
    "SmolLM2-135M": (SMOLLM2 | {"num_attention_heads": 9, "num_key_value_heads": 3}, 4, 46_080),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_token_of_a_published_model_takes_what_its_numbers_say(name):
    fields, size, expected = PUBLISHED[name]
    assert count.bytes_per_token(load_config(fields), bytes_per_number=size) == expected


def test_a_window_bounds_what_a_published_model_holds():
    mistral = LLAMA | {"model_type": "mistral", "num_key_value_heads": 8, "sliding_window": 4096}
    config = load_config(mistral)
    assert count.cache_bytes(config, 100, bytes_per_number=2) == 100 * 131_072
    assert count.cache_bytes(config, 32_768, bytes_per_number=2) == 4095 * 131_072


def test_the_text_part_of_a_model_of_several_is_counted():
    text = {"model_type": "gemma3_text", "num_hidden_layers": 48, "num_attention_heads": 16}
    text |= {"num_key_value_heads": 8, "hidden_size": 3840, "sliding_window": 1024}
    config = load_config({"model_type": "gemma3", "text_config": text})
    token = 2 * 8 * 256 * 2
    assert count.bytes_per_token(config, bytes_per_number=2) == 48 * token
    expected = (40 * 1023 + 8 * 10_000) * token
    assert count.cache_bytes(config, 10_000, bytes_per_number=2) == expected


# refused


UNSUPPORTED = {
    "t5": (small.t5, "expected a decoder-only model, but got an encoder-decoder"),
    "bert": (tf.BertConfig, "expected a decoder, but got an encoder"),
    "vit": (tf.ViTConfig, "expected a decoder with a cache, but got a config without `use_cache`"),
    "clip_text_model": (tf.CLIPConfig, "expected a decoder with a cache"),
    "openai-gpt": (tf.OpenAIGPTConfig, "expected a decoder with a cache"),
    "mamba": (
        small.mamba,
        "expected attention, or linear layers of the gated delta rule, but got",
    ),
    "rwkv": (tf.RwkvConfig, "expected `num_attention_heads`, a whole number .* but got None"),
    "deepseek_v32": (tf.DeepseekV32Config, "layers of full_attention, .* got indexed_attention"),
    "falcon_h1": (tf.FalconH1Config, "layers of full_attention, .* but got hybrid"),
    "mllama_text_model": (
        tf.MllamaConfig,
        "fields that give the size of its cache, but got others",
    ),
    "gemma2": (lambda: tf.Gemma2Config(sliding_window=1), "`sliding_window`, .* 2, but got 1"),
    "mistral": (
        lambda: tf.MistralConfig(layer_types=["sliding_attention"] * 32, sliding_window=None),
        "expected `sliding_window`, a whole number of at least 2, but got None",
    ),
}


@pytest.mark.parametrize("model_type", UNSUPPORTED)
def test_an_unsupported_config_is_refused_by_name(model_type):
    make, says = UNSUPPORTED[model_type]
    config = getattr(made := make(), "config", made)
    for call in (
        lambda: count.layers(config),
        lambda: count.bytes_per_token(config),
        lambda: count.cache_bytes(config, 0),
        lambda: count.allocated_bytes(config, 1),
    ):
        with pytest.raises(ValueError, match=f"{model_type} is unsupported: .*{says}"):
            call()


@pytest.mark.parametrize("came", [{"model_type": "llama"}, "gpt2", None])
def test_anything_but_a_config_is_a_type_error(came):
    with pytest.raises(TypeError, match=f"expected a config, .* got {re.escape(repr(came))}"):
        count.layers(came)


@pytest.mark.parametrize("size", [0, -2, True, "4", None, float("nan"), float("inf")])
def test_a_size_of_numbers_is_above_0(size):
    config = build("own head width").config
    for call in (
        lambda: count.bytes_per_token(config, bytes_per_number=size),
        lambda: count.cache_bytes(config, 3, bytes_per_number=size),
        lambda: count.allocated_bytes(config, 3, bytes_per_number=size),
    ):
        with pytest.raises(
            ValueError, match=f"bytes_per_number: expected a number above 0, but got {size!r}"
        ):
            call()


def test_counting_loads_no_library():
    code = "import sys, kvviz.count; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: count.rows(0, 3, cached=True), "n_prompt: expected a .* at least 1, but got 0"),
        (lambda _: count.cells(3, -1, cached=True), "n_new: expected a .* at least 0, but got -1"),
        (lambda _: count.positions(2.5, 1, cached=False), "n_prompt: expected a whole number"),
        (lambda c: count.cache_bytes(c, -1), "held: expected"),
        (lambda c: count.cache_bytes(c, 3, batch_size=0), "batch_size: expected"),
        (lambda c: count.cache_bytes(c, 3.0), "held: expected a whole number"),
        (lambda c: count.allocated_bytes(c, 0), "slots: expected .* at least 1"),
        (lambda c: count.allocated_bytes(c, 9, batch_size=-1), "batch_size: expected"),
    ],
)
def test_bad_counts_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(build("own head width").config)


@pytest.mark.parametrize(
    ("n_bytes", "said"),
    [(1, "1 byte"), (0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (2**41, "2 TiB")],
)
def test_bytes_are_said_in_units(n_bytes, said):
    assert count.in_units(n_bytes) == said


def test_numpy_numbers_are_numbers():
    config = build("own head width").config
    priced = count.cache_bytes(
        config, np.int64(5), batch_size=np.int32(2), bytes_per_number=np.float32(2)
    )
    assert priced == count.cache_bytes(config, 5, batch_size=2, bytes_per_number=2)
