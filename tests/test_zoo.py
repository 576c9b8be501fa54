"""Every causal decoder class: refused by name, or recorded right in all that a recording says.

A prompt of 9 tokens and 4 more, one at a time, past every window, each with the library's own
cache. The same tokens go through the bare model; what comes out, what the cache object holds and
the attention that the library's own eager attention gives back are compared with the recording.
"""

import contextlib
import functools
import types

import pytest
import torch

import kvviz as kv
from tests import small, zoo

N_PROMPT, N_STEPS = 9, 4
IDS = small.prompt(N_PROMPT + N_STEPS, seed=3)
CHUNKS = [IDS[:, :N_PROMPT], *IDS[:, N_PROMPT:].split(1, dim=1)]


@torch.no_grad()
def loop(model, **more):
    """(logits, cache state, output) of each pass."""
    name, cache, passes = type(model).__name__, None, []
    whole, cached = name in zoo.WHOLE_TEXT, name not in zoo.UNCACHED
    for at, ids in enumerate(CHUNKS):
        given = {} if cache is None else {"cache": cache}
        fed = IDS[:, : N_PROMPT + at] if cache is None or whole else ids  # None: it keeps no cache
        columns = columns_ahead(cache, ids.shape[1])
        out = model(fed, use_cache=cached, **given, **more)
        cache = getattr(out, "cache", None)
        passes.append(
            types.SimpleNamespace(
                fed=fed,
                logits=out.logits[0, -1].float(),
                columns=columns,
                attentions=getattr(out, "attentions", None),
                **cache_state(cache),
            )  # fmt: skip
        )
    return passes


def decoder_cache(cache):
    return getattr(cache, "self_attention_cache", cache)


def columns_ahead(cache, fed):
    """Layer -> columns that the library makes its mask for, of layers that hold keys already."""
    layers = getattr(decoder_cache(cache), "layers", ())
    return {
        number: int(layer.get_mask_sizes(fed)[0])
        for number, layer in enumerate(layers)
        if isinstance(getattr(layer, "keys", None), torch.Tensor)
    }


def tensors(thing, seen=None):
    """Every tensor with axes that can be reached from a cache, each once."""
    seen = {} if seen is None else seen
    if isinstance(thing, torch.Tensor):
        if thing.ndim:
            yield thing
        return
    if id(thing) in seen:
        return
    seen[id(thing)] = thing
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, (list, tuple)):
        parts = list(thing)
    elif type(thing).__module__.startswith("transformers") and not hasattr(thing, "to_dict"):
        parts = list(vars(thing).values()) if hasattr(thing, "__dict__") else []
    else:
        parts = []
    for part in parts:
        yield from tensors(part, seen)


def cache_state(cache):
    held, keyed = {}, set()
    for number, layer in enumerate(getattr(decoder_cache(cache), "layers", ())):
        if isinstance(getattr(layer, "keys", None), torch.Tensor):
            held[number] = int(layer.get_seq_length())
            keyed.add(number)
    found = {id(t): t for t in tensors(cache)}.values()
    return dict(held=held, keyed=keyed, bytes=sum(t.nbytes for t in found))


@contextlib.contextmanager
def eager(model):
    """The library's own eager attention, the settings put back afterwards."""
    configs = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    before = [(c, c._attn_implementation) for c in configs.values()
              if hasattr(c, "_attn_implementation")]  # fmt: skip
    try:
        model.set_attn_implementation("eager")
        yield
    finally:
        for config, setting in before:
            config._attn_implementation = setting


def settings(model):
    return [getattr(getattr(m, "config", None), "_attn_implementation", None)
            for m in model.modules()]  # fmt: skip


def recorded(model, keep):
    """(passes, run), or the refusal; any other error is a failure."""
    before, run = settings(model), ()
    try:
        with kv.record(model, keep=keep) as run:
            passes = loop(model)
    except (ValueError, TypeError) as error:
        names = {type(module).__name__ for module in model.modules()}
        assert any(name in str(error) for name in names), f"refused, but not by name: {error!r}"
        assert len(run) == 0, f"refused after {len(run)} steps were recorded: {error}"
        return None, str(error)
    finally:
        assert settings(model) == before, "the settings were not put back"
    return passes, run


def distance(left, right):
    return float((left - right).abs().max() / right.abs().max())


def logits_of(passes):
    return torch.stack([p.logits for p in passes])


@functools.lru_cache(maxsize=2)
def bare(name):
    return loop(zoo.build(name))


@functools.lru_cache(maxsize=2)
def bare_eager(name):
    """The library's own eager attention: its logits, and its weights where it gives them."""
    model = zoo.build(name)
    with eager(model):
        try:
            passes = loop(model, output_attentions=True)
        except Exception:  # it gives no weights
            passes = loop(model)
    return passes, [p.attentions for p in passes]


def weights_of(attentions, layers):
    """Layer -> the library's weights, where it can be told which layer's they are."""
    if not isinstance(attentions, (tuple, list)) or not all(type(n) is int for n in layers):
        return {}
    given = [a for a in attentions if isinstance(a, torch.Tensor) and a.ndim == 4]
    if len(given) == len(layers):
        return dict(zip(layers, given, strict=True))
    return {n: a for n, a in enumerate(attentions) if n in layers and a is not None}


def problems_in_counts(passes, run, attentions, n_layers):
    """What a recording says of rows, columns, what is held, bytes and drawn columns."""
    if len(run) != len(passes):
        yield f"{len(run)} steps of {len(passes)} passes"
        return
    held = {}
    for at, (step, truth) in enumerate(zip(run, passes, strict=True)):
        fed = truth.fed.shape[1]
        expected = dict(
            fed=fed,
            held_before=max(held.values(), default=0),
            held_after=max(truth.held.values(), default=0),
            bytes=truth.bytes,
        )
        for name, value in expected.items():
            if getattr(step, name) != value:
                yield f"step {at}: {name} {getattr(step, name)}, expected {value}"
        held = truth.held
        if step.token_ids.tolist() != truth.fed.tolist():
            yield f"step {at}: token ids"
        if unrecorded := truth.keyed - set(step.layers):
            yield f"step {at}: layers {unrecorded} hold keys, and are not recorded"
            return
        if unknown := [n for n in step.layers if n not in range(n_layers)]:
            yield f"step {at}: layers {unknown} recorded, and there are {n_layers}"
            return
        known = weights_of(attentions[at], step.layers)
        for layer in truth.columns.keys() - known.keys():
            if step.columns_by_layer[layer] != truth.columns[layer]:
                columns = step.columns_by_layer[layer]
                yield f"step {at}, layer {layer}: {columns} columns, the mask has {truth.columns}"
        for layer, weights in known.items():
            if step.columns_by_layer[layer] != weights.shape[-1]:
                columns = step.columns_by_layer[layer]
                yield f"step {at}, layer {layer}: {columns} columns, expected {weights.shape[-1]}"
            elif step.rows_by_layer[layer] != weights.shape[-2]:
                rows = step.rows_by_layer[layer]
                yield f"step {at}, layer {layer}: {rows} rows, expected {weights.shape[-2]}"
        yield from problems_in_tokens(at, step)


def problems_in_tokens(at, step):
    for layer in step.layers:
        places = step.column_positions(layer)
        told, text = step.tokens(), IDS[0, : step.visible].tolist()
        wrong = [p for p in places.tolist() if p >= 0 and told[p] != text[p]]
        if wrong:
            yield f"step {at}, layer {layer}: columns {wrong} have other tokens, or none"
        square = step.square(layer, 0)
        states = [square.column_states[p] for p in places.tolist() if p >= 0]
        fresh = step.visible - (N_PROMPT if at == 0 else 1)  # tokens never fed before
        expected = [
            "read" if p < step.held_before else "recomputed" if p < fresh else "new"
            for p in places.tolist()
            if p >= 0
        ]
        if states != expected:
            yield f"step {at}, layer {layer}: drawn as {states}"


def problems_in_weights(run, attentions):
    for at, step in enumerate(run):
        for layer, weights in weights_of(attentions[at], step.layers).items():
            square = step.square(layer, 0)
            places = step.column_positions(layer)
            if len(places) != weights.shape[-1]:
                continue  # told above
            drawn = torch.from_numpy(square.weights)[:, places[places >= 0]]
            own = weights[0, 0][:, places >= 0].float()
            if drawn.shape != own.shape or not torch.allclose(drawn, own, atol=1e-5):
                yield f"step {at}, layer {layer}: weights differ from the library's own"


def problems(name):
    """All that is wrong in recordings of this class: counts only, and with attention kept."""
    model = zoo.build(name)
    n_layers = model.config.get_text_config().num_hidden_layers
    found = []

    passes, run = recorded(model, keep=())
    if passes is not None:
        _, attentions = bare_eager(name)
        if not torch.equal(logits_of(passes), logits_of(bare(name))):
            gap = distance(logits_of(passes), logits_of(bare(name)))
            found.append(f"counts only: logits moved by {gap:.1g}")
        found += [
            f"counts only: {p}" for p in problems_in_counts(passes, run, attentions, n_layers)
        ]

    passes, run = recorded(model, keep=("attention",))
    if passes is not None:
        own, attentions = bare_eager(name)
        gap = distance(logits_of(passes), logits_of(own))
        if not gap <= 1e-5:
            found.append(f"attention kept: logits {gap:.1g} off the library's eager")
        found += [
            f"attention kept: {p}" for p in problems_in_counts(passes, run, attentions, n_layers)
        ]
        found += [f"attention kept: {p}" for p in problems_in_weights(run, attentions)]
    return found


@pytest.mark.parametrize("name", zoo.NAMES)
def test_refused_by_name_or_right(name):
    found = problems(name)
    assert not found, "\n".join(found)
