"""`memory_panel` agrees with `count`, and its picture follows its three fields."""

import pytest
import small
import torch
from traitlets import TraitError
from transformers import DynamicCache

import kvviz as kv
from kvviz import count


@pytest.fixture(scope="module")
def model():
    return small.llama()


def test_it_weighs_what_the_tensors_weigh(model):
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(small.prompt(11, n_batch=3), cache=cache)
    measured = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert kv.memory_panel(model, tokens=11, batch_size=3).bytes == measured


def test_the_weights_of_a_model_are_its_own_and_a_config_has_none(model):
    weights = sum(weight.nbytes for weight in model.parameters())
    assert (
        f"% of the weights' {count.in_units(weights)}" in kv.memory_panel(model, tokens=1).sentence
    )
    assert "weights" not in kv.memory_panel(model.config).sentence
    assert "times the weights' 10 bytes" in kv.memory_panel(model.config, weights=10).sentence


def test_the_weights_are_stored_as_the_cache_is_and_a_16_bit_cache_stands_beside_16_bit_weights(
    model,
):
    weights = sum(weight.nbytes for weight in model.parameters())
    panel = kv.memory_panel(model)
    for precision, factor, named in [
        ("float32", 1, ""),
        ("bfloat16", 1 / 2, ""),
        ("8 bits", 1 / 2, " in bfloat16"),
        ("4 bits", 1 / 2, " in bfloat16"),
    ]:
        panel.precision = precision
        assert panel.sentence.endswith(f"the weights' {count.in_units(weights * factor)}{named}")
        texts = {text.get_text() for ax in panel.picture.figure.axes for text in ax.texts}
        assert f"weights in {precision if factor == 1 or not named else 'bfloat16'}" in texts
        of_bytes = kv.memory_panel(model, weights=10, precision=precision)
        assert of_bytes.sentence.endswith("the weights' 10 bytes")


def test_sentence_and_picture_follow_each_number(model):
    panel = kv.memory_panel(model, tokens=1)
    heavy = panel.bytes
    seen = {panel.sentence}
    for name, value in {"tokens": 700, "batch_size": 9, "precision": "4 bits"}.items():
        before = panel.bytes
        setattr(panel, name, value)
        assert panel.bytes == before * {"tokens": 700, "batch_size": 9, "precision": 1 / 8}[name]
        assert f'alt="{panel.sentence}"'.replace("'", "&#x27;") in panel._picture
        seen.add(panel.sentence)
    assert len(seen) == 4
    assert panel.bytes == heavy * 700 * 9 / 8


def test_what_the_browser_sends_sets_the_numbers_and_what_is_out_of_range_does_not(model):
    panel = kv.memory_panel(model)
    panel.set_state({"tokens": 77, "batch_size": 5, "precision": "bfloat16"})
    assert panel.sentence.startswith("5 conversations of 77 tokens in bfloat16")
    for name, value in {"tokens": -1, "batch_size": 0, "precision": "int3"}.items():
        with pytest.raises(TraitError):
            panel.set_state({name: value})
    assert (panel.tokens, panel.batch_size, panel.precision) == (77, 5, "bfloat16")
    limits = panel._about["limits"]
    for name, (least, most) in limits.items():
        for value in (least, most):
            setattr(panel, name, value)
        with pytest.raises(TraitError):
            setattr(panel, name, most + 1)


def test_it_compares_the_cache_with_the_weights(model):
    a_token = int(count.bytes_per_token(model.config))
    shares = {50: "50% of", 100: "100% of", 101: "101% of", 199: "199% of", 300: "3 times"}
    assert (
        "99.99% of the weights"
        in kv.memory_panel(model, weights=1e4 * a_token, tokens=9999).sentence
    )
    for tokens, share in shares.items():
        panel = kv.memory_panel(model.config, weights=100 * a_token, tokens=tokens)
        assert f", {share} the weights' {count.in_units(100 * a_token)}" in panel.sentence
        figure = panel.picture.figure
        assert figure.axes[0].texts[0].get_text().endswith(f", {share} the weights")
        (bar,) = [each for each in figure.findobj() if each.get_gid() == "bar:cache"]
        assert bool(bar.get_hatch()) == (tokens > 100)  # if it's larger than the weights


def test_a_stored_notebook_shows_the_picture_and_the_sentence(model):
    shown, _ = kv.memory_panel(model)._repr_mimebundle_()
    assert shown["text/plain"] == repr(kv.memory_panel(model)) == kv.memory_panel(model).sentence
    assert {"image/png", "text/html", "application/vnd.jupyter.widget-view+json"} <= set(shown)


@pytest.mark.parametrize(
    "odd",
    [
        {"tokens": -1},
        {"tokens": 2.5},
        {"batch_size": 0},
        {"precision": "int3"},
        {"weights": 0},
        {"weights": "1"},
    ],
)
def test_what_cannot_be_weighed_is_refused(model, odd):
    with pytest.raises(ValueError, match=next(iter(odd))):
        kv.memory_panel(model, **odd)


def test_a_model_that_keeps_no_keys_is_refused():
    with pytest.raises(ValueError, match="mamba"):
        kv.memory_panel(small.mamba())
