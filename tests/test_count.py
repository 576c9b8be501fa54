import pytest
import small
import torch
from transformers import DynamicCache, LlamaConfig

from kvviz import count
from kvviz.recording import record


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
    model = small.llama()
    with record(model, keep=()) as run:
        (small.cached_loop if cached else small.plain_loop)(model, small.prompt(prompt), new)
    # A loop that asks for no token may still run the prompt: the counts are of what is needed.
    expected = run.rows if new else []
    assert count.rows(prompt, new, cached=cached) == expected
    assert count.positions(prompt, new, cached=cached) == sum(expected)
    assert count.cells(prompt, new, cached=cached) == (run.cells if new else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("build", [b for b in small.RECORDED if b is not small.qwen3_next])
@pytest.mark.parametrize("held", [1, 4, 5, 6, 40])
def test_bytes_equal_the_tensors(build, held, dtype):
    model = build().to(dtype)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        for ids in small.prompt(held, n_batch=2).split(1, dim=1):
            model(ids, cache=cache)
    measured = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    size = dtype.itemsize
    assert count.cache_bytes(model.config, held, batch=2, bytes_per_number=size) == measured


def test_linear_attention_keeps_no_keys():
    config = small.qwen3_next().config
    assert count.bytes_per_token(config) == 2 * 2 * 22 * 4
    assert count.cache_bytes(config, 10) == 10 * 2 * 2 * 22 * 4


def test_the_head_width_is_the_configs_own():
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, head_dim=16, num_hidden_layers=1)
    assert count.bytes_per_token(config) == 2 * 4 * 16 * 4


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: count.rows(0, 3, cached=True), "prompt must be .* at least 1, and got 0"),
        (lambda: count.cells(3, -1, cached=True), "new must be .* at least 0, and got -1"),
        (lambda: count.positions(2.5, 1, cached=False), "prompt must be a whole number"),
        (lambda: count.cache_bytes(small.llama().config, -1), "held must be"),
        (lambda: count.cache_bytes(small.llama().config, 3, batch=0), "batch must be"),
    ],
)
def test_bad_counts_are_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
