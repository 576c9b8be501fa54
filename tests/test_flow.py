"""The flow of a step shows what went in, what was read and written, and what came out."""

import pytest
import small
import torch
from squares import decode
from test_colours import check_contrast
from texts_apart import check_texts

import kvviz as kv
from kvviz.drawing.marks import find_cells

KEEP = ("attention", "keys")


def record(model, ids, n=5, keep=KEEP, **options):
    return small.record_generate(model, ids, n, keep, **options)


@pytest.fixture(scope="module")
def model():
    return small.llama()


@pytest.fixture(scope="module")
def cached(model):
    return record(model, small.prompt(6))


@pytest.fixture(scope="module")
def uncached(model):
    return record(model, small.prompt(6), use_cache=False)


def cells(picture):
    return find_cells(picture.figure.axes[0].collections)


def slot(picture, role, layer):
    """States of a layer's slot, a state for each column."""
    found = {
        column: state
        for (kind, place), state in cells(picture).items()
        if kind == f"slots:{role}" and place[0] == layer
        for column in place[1]
    }
    return [found[column] for column in sorted(found)]


def words(picture):
    return [text.get_text() for ax in picture.figure.axes for text in ax.texts if text.get_text()]


# --- what is drawn --------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1, 4])
def test_every_layers_slot_shows_what_was_read_and_what_was_written(cached, step):
    picture = kv.draw_flow(cached, step=step, layer=1, head=4)
    held, fed = cached[step].held_before, cached[step].fed
    for layer in range(3):
        for role in ("keys", "values"):
            assert slot(picture, role, layer) == ["read"] * held + ["new"] * fed
    drawn = cells(picture)
    assert [drawn["keys", j] for j in range(held + fed)] == ["read"] * held + ["new"] * fed
    assert {place for role, place in drawn if role == "queries"} == set(range(held, held + fed))
    assert drawn["layers", 1] == "open" and drawn["layers", 0] == drawn["layers", 2] == "closed"


def test_without_a_cache_there_are_no_slots_and_the_picture_says_so(uncached):
    picture = kv.draw_flow(uncached, step=4, layer=1)
    assert slot(picture, "keys", 0) == slot(picture, "values", 2) == []
    assert {"no cache", "nothing is kept", "each layer computes 10"} <= {*words(picture)}
    assert "the cache" not in " ".join(words(picture))
    assert cells(picture)["keys", 3] == "recomputed"


def test_a_layers_window_is_drawn_in_its_own_slot():
    run = record(small.gemma3(window=5), small.prompt(9))
    picture = kv.draw_flow(run, step=2, layer=1)
    assert slot(picture, "keys", 0) == ["dropped"] * 6 + ["read"] * 4 + ["new"]
    assert slot(picture, "keys", 1) == ["read"] * 10 + ["new"]
    assert "in 2 of 3 layers, 4 columns are read from the cache and 1 written" in picture.sentence
    assert (
        "; in 1 of 3 layers, 10 columns are read from the cache and 1 written" in picture.sentence
    )
    inside = kv.draw_flow(run, step=2, layer=0)  # the same, whichever layer is open
    assert [slot(inside, "keys", layer) for layer in range(3)] == [
        slot(picture, "keys", layer) for layer in range(3)
    ]


def test_layers_that_use_another_layers_keys_have_no_slot_and_write_nothing():
    run = record(small.gemma3n(), small.prompt(7))  # the last two of five layers
    picture = kv.draw_flow(run, step=2, layer=4)
    assert [bool(slot(picture, "keys", layer)) for layer in range(5)] == [True] * 3 + [False] * 2
    assert "in 2 of 5 layers, 4 columns are read from the cache and 1 written" in picture.sentence
    assert "in 1 of 5 layers, 8 columns are read from the cache and 1 written" in picture.sentence
    assert "1 computed" in words(picture) and "1 written" not in words(picture)


def test_the_open_row_is_the_real_attention(cached):
    picture = kv.draw_flow(cached, step=3, layer=2, head=5)
    ink = next(
        a
        for a in picture.figure.axes[0].collections
        if getattr(a, "role", "") == "attention" and a.state == "ink"
    )
    shares = cached[3].attention[2][0, 5, 0].tolist()
    order = sorted(range(9), key=shares.__getitem__)
    greys = {
        column: color[0] for (_, column), color in zip(ink.places, ink.get_facecolor(), strict=True)
    }
    assert sorted(range(9), key=lambda column: -greys[column]) == order


def test_the_open_head_is_marked_among_its_heads(cached):
    drawn = cells(kv.draw_flow(cached, layer=0, head=4))
    assert [drawn["heads", head] for head in range(6)] == ["closed"] * 4 + ["open", "closed"]
    colors = {
        a.places[0]: tuple(a.get_facecolor()[0])
        for a in kv.draw_flow(cached, layer=0, head=4).figure.axes[0].collections
        if getattr(a, "role", "") == "key/value heads"
    }
    assert colors[1] != colors[0]  # heads 3 to 5 read key/value head 1


@pytest.mark.parametrize("head", range(6))
def test_the_key_value_head_that_is_read_is_said(cached, head):
    said = kv.draw_flow(cached, head=head).sentence
    assert f"query head {head} of 6, which reads key/value head {head // 3} of 2, " in said


def test_layers_stand_on_each_other_beside_their_numbers_and_their_slots(cached):
    ax = kv.draw_flow(cached, step=1, layer=1).figure.axes[0]
    numbers = {t.get_gid(): t.get_position()[1] for t in ax.texts if t.get_gid()}
    at: dict = {}
    for each in ax.collections:
        if getattr(each, "role", "").startswith(("layers", "slots")):
            for place, box in zip(each.places, each.corners, strict=True):
                layer = place if each.role == "layers" else place[0]
                at.setdefault(layer, set()).add((box[:, 1].min(), box[:, 1].max()))
    for layer, ((top, bottom), *others) in at.items():
        assert top < numbers[f"layer:{layer}"] < bottom and not others
    tops = [at[layer].pop()[0] for layer in range(3)]
    assert tops == sorted(tops, reverse=True)
    boxes = numbers["box:embedding"], numbers["box:output layer"]
    assert boxes[0] > max(tops) and boxes[1] < min(tops)


# --- what is said ---------------------------------------------------------------------------


def test_sentence_of_a_decode_step(cached):
    token = cached.label(int(cached[3].token_ids[0, 0]))
    following = cached.label(int(cached[4].token_ids[0, 0]))
    said = kv.draw_flow(cached, step=3, layer=1, head=2).sentence
    assert said.startswith(
        f"step 3, layer 1, head 2: '{token}', one token, goes through the embedding, 3 layers and "
        "the output layer; in each layer, 8 columns are read from the cache and 1 written; "
        "query head 2 of 6, which reads key/value head 0 of 2, attends most to "
    )
    assert said.endswith(f"; whole cache: 9.28 KiB, all 3 layers; the next token is '{following}'")


def test_sentences_of_a_prefill_and_of_a_step_without_a_cache(cached, uncached):
    assert "6 tokens go through" in kv.draw_flow(cached).sentence
    assert "in each layer, 6 columns are written; " in kv.draw_flow(cached).sentence
    assert (
        "no cache: in each layer, 8 keys and as many values are computed, 7 of them recomputed, "
        "and none is kept; "
    ) in kv.draw_flow(uncached, step=2).sentence


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_next_token_is_the_one_that_the_next_step_is_fed(model, use_cache):
    ids = small.prompt(6)
    run = record(model, ids, use_cache=use_cache, keep=("attention", "logits"))
    out = model.generate(ids, max_new_tokens=5, do_sample=False)[0, 6:].tolist()
    said = [kv.draw_flow(run, step=step).sentence.rpartition("; ")[2] for step in range(5)]
    assert said == [
        *(f"the next token is '{token}'" for token in out[:4]),
        f"the likeliest next token is '{out[4]}'",
    ]


def test_a_next_token_that_was_not_recorded_is_not_said(cached):
    picture = kv.draw_flow(cached, step=4)
    assert "next token" not in picture.sentence
    assert {"?", "next token: not recorded"} <= {*words(picture)}


def test_without_keys_or_attention_only_what_is_known_is_said(model):
    run = record(model, small.prompt(4), keep=())
    picture = kv.draw_flow(run, step=1, layer=2, head=1)
    assert "; query head 1: attention was not kept; " in picture.sentence
    assert not any(role == "key/value heads" for role, _ in cells(picture))
    known = record(model, small.prompt(4), keep=("attention",))
    assert "query head 0 of 6 attends most " in kv.draw_flow(known, step=1).sentence


@pytest.mark.parametrize(
    ("change", "says"),
    [({"step": 5}, "steps 0 to 4"), ({"layer": 3}, "layer 3"), ({"head": 6}, "heads 0 to 5")],
)
def test_what_the_recording_does_not_have_is_refused(cached, change, says):
    with pytest.raises(ValueError, match=says):
        kv.draw_flow(cached, **change)


@pytest.mark.parametrize("given", [None, "run", decode()])
def test_anything_but_a_recording_is_refused(given):
    with pytest.raises(TypeError, match="expected a recording made by kv.record, but got"):
        kv.draw_flow(given)


def test_only_the_layers_kept_are_needed(model):
    run = record(model, small.prompt(4), layers=[2])
    picture = kv.draw_flow(run, step=1)
    assert slot(picture, "keys", 0) == ["read"] * 4 + ["new"]
    with pytest.raises(ValueError, match="layers 2 only"):
        kv.draw_flow(run, step=1, layer=0)


# --- what it looks like ---------------------------------------------------------------------


def _padded():
    ids, mask = small.prompt(6, 2), torch.ones(2, 6, dtype=torch.long)
    mask[1, :3] = 0
    return record(small.llama(), ids, attention_mask=mask)


LOOKS = {
    "prefill": lambda: kv.draw_flow(record(small.llama(), small.prompt(6)), layer=2),
    "decode": lambda: kv.draw_flow(record(small.llama(), small.prompt(6)), step=3, layer=1),
    "one token": lambda: kv.draw_flow(record(small.llama(), small.prompt(1))),
    "two columns": lambda: kv.draw_flow(record(small.llama(), small.prompt(1)), step=1),
    "without": lambda: kv.draw_flow(
        record(small.llama(), small.prompt(9), use_cache=False), step=1
    ),
    "window": lambda: kv.draw_flow(record(small.gemma3(), small.prompt(9)), step=3),
    "padding": lambda: kv.draw_flow(_padded(), step=1, sequence=1),
    "deep": lambda: kv.draw_flow(
        record(small.llama(num_hidden_layers=30), small.prompt(6)), step=2, layer=13
    ),
    "deeper": lambda: kv.draw_flow(record(small.llama(num_hidden_layers=61), small.prompt(6))),
    "many heads": lambda: kv.draw_flow(
        record(small.llama(hidden_size=64, num_attention_heads=32, head_dim=2), small.prompt(6)),
        step=1,
    ),
    "each its own": lambda: kv.draw_flow(
        record(small.llama(num_attention_heads=11, num_key_value_heads=11), small.prompt(2))
    ),
    "long": lambda: kv.draw_flow(record(small.llama(), small.prompt(90)), step=2),
    "long prefill": lambda: kv.draw_flow(record(small.llama(), small.prompt(83))),
}


@pytest.mark.parametrize("name", LOOKS)
def test_every_text_is_inside_readable_and_apart(name):
    picture = LOOKS[name]()
    assert picture.width <= 830 and picture.height <= 620
    check_texts(picture.figure)
    check_contrast(picture.figure)
