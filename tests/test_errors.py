"""Whatever a public name is given, its error is one clear line, and never holds a whole object."""

import copy

import pytest
import torch
from small import llama, prompt
from transformers import MambaConfig

import kvviz as kv
from kvviz.arguments import describe


class Large:
    """Something whose repr would fill a page, as a model's does."""

    def __repr__(self):
        return "many lines\n" * 200


@pytest.fixture(scope="module")
def given():
    model, ids = llama(), prompt(6)
    with kv.record(model, layers=[1]) as run:
        model.generate(ids, max_new_tokens=4, do_sample=False)
    return {"model": model, "ids": ids, "run": run}


CALLS = {
    "draw_step": lambda g, x: kv.draw_step(x),
    "draw_step, step": lambda g, x: kv.draw_step(g["run"], step=x),
    "draw_step, layer": lambda g, x: kv.draw_step(g["run"], layer=x),
    "draw_side_by_side": lambda g, x: kv.draw_side_by_side(g["run"], x),
    "draw_filmstrip": lambda g, x: kv.draw_filmstrip(x),
    "draw_filmstrip, steps": lambda g, x: kv.draw_filmstrip(g["run"], steps=x),
    "draw_heads": lambda g, x: kv.draw_heads(x),
    "draw_overlay": lambda g, x: kv.draw_overlay(x, steps=(2, 3)),
    "draw_curves": lambda g, x: kv.draw_curves(x, {"a": [1]}, title="t"),
    "draw_bars": lambda g, x: kv.draw_bars({"a": x}, title="t"),
    "draw_memory": lambda g, x: kv.draw_memory({"a": [1]}, budget=x, title="t"),
    "draw_roofline": lambda g, x: kv.draw_roofline(x, flops=1, bandwidth=1, title="t"),
    "draw_roofline, flops": lambda g, x: kv.draw_roofline(
        {"a": (1, 1)}, flops=x, bandwidth=1, title="t"
    ),
    "stepper": lambda g, x: kv.stepper(x),
    "stepper, uncached": lambda g, x: kv.stepper(g["run"], uncached=x),
    "stepper, layer": lambda g, x: kv.stepper(g["run"], layer=x),
    "animate": lambda g, x: kv.animate(x),
    "animate, steps": lambda g, x: kv.animate(g["run"], steps=x),
    "animate, seconds": lambda g, x: kv.animate(g["run"], seconds=x),
    "save a GIF": lambda g, x: kv.animate(g["run"], steps=[0]).save(x),
    "save a picture": lambda g, x: kv.draw_step(g["run"]).save(x),
    "save a page": lambda g, x: kv.stepper(g["run"]).save(x),
    "save a run": lambda g, x: g["run"].save(x),
    "load a run": lambda g, x: kv.Run.load(x),
    "memory_panel": lambda g, x: kv.memory_panel(g["model"].config, weights=x),
    "check": lambda g, x: kv.check(lambda *_: None, x, g["ids"], 4),
    "check, ids": lambda g, x: kv.check(lambda *_: None, g["model"], x, 4),
    "check, n_new": lambda g, x: kv.check(lambda *_: None, g["model"], g["ids"], x),
    "check_cache": lambda g, x: kv.check_cache(x),
    "check_cache, model": lambda g, x: kv.check_cache(model=x),
    "record, layers": lambda g, x: kv.record(g["model"], layers=[x]).__enter__(),
    "record, keep": lambda g, x: kv.record(g["model"], keep=[x]).__enter__(),
    "record, tokenizer": lambda g, x: kv.record(g["model"], x).__enter__(),
    "record_serving": lambda g, x: kv.record_serving([x]).__enter__(),
    "record_serving, keep": lambda g, x: kv.record_serving(g["model"], keep=[x]).__enter__(),
    "record_serving, layers": lambda g, x: kv.record_serving(g["model"], layers=[x]).__enter__(),
    "load a serving run": lambda g, x: kv.ServingRun.load(x),
    "a run's step": lambda g, x: g["run"][x],
    "a step's square": lambda g, x: g["run"][0].square(x, 0),
    "a square's head": lambda g, x: g["run"][0].square(1, x),
    "a step's attention": lambda g, x: g["run"][0].attention[x],
    "causal_mask": lambda g, x: kv.causal_mask(x, 1, 2),
    "in_units": lambda g, x: kv.count.in_units(x),
    "cache_bytes": lambda g, x: kv.count.cache_bytes(x, 3),
    "cache_bytes, held": lambda g, x: kv.count.cache_bytes(g["model"].config, x),
    "load_model": lambda g, x: kv.load_model(x),
    "load_config": lambda g, x: kv.load_config(x),
    "compare": lambda g, x: kv.timing.compare({"a": int, "b": x}),
    "compare, rounds": lambda g, x: kv.timing.compare({"a": int, "b": int}, rounds=x),
    "Comparison": lambda g, x: kv.timing.Comparison({"a": (x,)}),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", ["model", "large"])
def test_an_error_never_holds_a_whole_object(name, kind, given):
    value = given["model"] if kind == "model" else Large()
    if (name, kind) == ("check", "model"):
        value = torch.nn.Linear(200, 200)
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        CALLS[name](given, value)
    says = str(caught.value)
    assert len(says) < 200 and "\n" not in says and "not supported between" not in says
    assert "object of type" not in says and "unsupported operand" not in says


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("animate, seconds", "x", "seconds: expected 0.02 to 60 for each frame, but got 'x'"),
        ("draw_curves", 3, "x: expected a list of numbers, but got shape ()"),
        ("causal_mask", "a", "t: expected a whole number, but got 'a'"),
        ("in_units", "a", "n_bytes: expected a number of at least 0, but got 'a'"),
        ("save a GIF", 3, "path: expected the name of a file, but got 3"),
        ("check_cache, model", 3, "expected a Llama with model_type 'llama', got 3"),
        ("a run's step", "a", "expected a step's number or a slice, but got 'a'"),
        (
            "a step's attention",
            2,
            "layer 2: attention was kept of layers 1 only; "
            "record(..., layers=[1, 2]) keeps it, too",
        ),
        ("a step's attention", 99, "layer 99: expected one of this model's, 0, 1, 2"),
    ],
)
def test_what_was_expected_and_what_came(name, value, expected, given):
    with pytest.raises((TypeError, ValueError, KeyError)) as caught:
        CALLS[name](given, value)
    assert str(caught.value) == expected


def test_a_config_whose_states_cannot_be_counted_is_named():
    with pytest.raises(ValueError, match="mamba is unsupported: .*linear layers of another kind"):
        kv.count.cache_bytes(MambaConfig(), 3)


def test_the_layers_that_were_kept_are_read_as_before(given):
    attention = given["run"][0].attention
    assert list(attention) == [1] and attention[1].shape == (1, 6, 6, 6)
    assert attention.get(2) is None


def test_a_cache_copied_with_gradients_gets_advice(given):
    def loop(model, ids, n):
        with torch.enable_grad():
            out = model(ids, use_cache=True)
            copy.deepcopy(out.cache)

    model = llama().requires_grad_(True)
    verdict = kv.check(loop, model, given["ids"], 4)
    assert "deepcopy protocol" in verdict.headline
    assert "write @torch.no_grad() over your loop" in repr(verdict)


def test_what_came_is_described_in_a_few_words():
    nested = []
    nested.append(nested)
    assert describe(nested) == "list of length 1"
    assert describe({"a": torch.ones(2)}) == "dict of length 1"
    assert describe(range(3)) == "range(0, 3)" and describe(None) == "None"
    assert describe(int) == "the class int" and describe(2**400) == "int of 401 bits"
    assert describe("x" * 41) == "str of 41 characters"
