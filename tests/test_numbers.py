"""Keys as numbers: each cell has its number's colour, and the sentence says what is known."""

import numpy as np
import pytest
import small
import torch
from matplotlib.colors import to_hex
from squares import decode
from test_colours import check_contrast, distance
from texts_apart import check_texts

import kvviz as kv
from kvviz.drawing import style

KINDS = ("keys", "values", "queries", "outputs")


def record(model, ids, n=4, keep=("attention", *KINDS), **options):
    return small.record_generate(model, ids, n, keep, **options)


@pytest.fixture(scope="module")
def model():
    return small.llama()


@pytest.fixture(scope="module")
def cached(model):
    return record(model, small.prompt(6))


def levels(picture):
    """(width, n): the level of the colour that each number is drawn in."""
    cells = [a for a in picture.figure.axes[0].collections if getattr(a, "role", "") == "numbers"]
    found = {place: int(each.state) for each in cells for place in each.places}
    for each in cells:
        assert to_hex(each.get_facecolor()[0]) == style.tint_number(int(each.state))
    rows, columns = (1 + max(at) for at in zip(*found, strict=True))
    return np.array([[found[k, j] for j in range(columns)] for k in range(rows)])


def words(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts if text.get_text()]


@pytest.mark.parametrize(
    ("kind", "head", "own"),
    [("keys", 4, 1), ("values", 2, 0), ("queries", 4, 4), ("outputs", 5, 5)],
)
def test_every_number_is_drawn_in_its_place_by_sign_and_size(cached, kind, head, own):
    picture = kv.draw_numbers(cached, step=2, layer=1, head=head, kind=kind)
    numbers = cached[2].kept[kind][1][0, own].numpy().T
    drawn = levels(picture)
    assert drawn.shape == numbers.shape == (22, 8 if kind in ("keys", "values") else 1)
    assert (np.sign(drawn)[drawn != 0] == np.sign(numbers)[drawn != 0]).all()
    order = np.argsort(numbers, axis=None)
    assert (np.diff(drawn.ravel()[order]) >= 0).all()
    assert abs(drawn).max() >= 3 and abs(drawn).min() < 2


def test_numbers_below_zero_have_a_slit_and_others_have_none(cached):
    picture = kv.draw_numbers(cached, step=1, layer=0)
    drawn = levels(picture)
    slits = sum(
        len(a.get_segments())
        for a in picture.figure.axes[0].collections
        if a.get_gid() == "below zero"
    )
    assert slits == (drawn < 0).sum() + 5  # and five on the scale


def test_the_newest_column_is_framed_and_its_first_numbers_are_written_beside_it(cached):
    picture = kv.draw_numbers(cached, step=2, layer=1, head=0)
    ax = picture.figure.axes[0]
    (frame,) = [a for a in ax.collections if a.get_gid() == "framed"]
    x = frame.get_segments()[0][:, 0]
    newest = [
        box[:, 0]
        for a in ax.collections
        if getattr(a, "role", "") == "numbers"
        for (_, j), box in zip(a.places, a.corners, strict=True)
        if j == 7
    ]
    assert all(x.min() <= at.min() < at.max() <= x.max() for at in newest)
    assert np.allclose(x, np.where(x < x.mean(), np.min(newest), np.max(newest)), atol=1)
    numbers = cached[2].keys[1][0, 0, -1].tolist()
    texts = {t.get_gid(): t.get_text() for t in ax.texts}
    for k in range(6):
        assert float(texts[f"number:{k}"].replace("−", "-")) == pytest.approx(numbers[k], abs=0.006)
    assert "… and 16 more" in words(picture)


def test_another_column_can_be_framed_and_is_named(cached):
    picture = kv.draw_numbers(cached, step=2, layer=1, column=2)
    ax, token = picture.figure.axes[0], cached[2].square(1, 0).tokens[2]
    assert f"; the frame is around '{token}' at position 2; " in picture.sentence
    texts = {t.get_gid(): t for t in ax.texts}
    assert texts["name"].get_text() == f"key of {token}"
    assert texts["column:2"].get_fontproperties().get_file().endswith("Bold.ttf")
    numbers = cached[2].keys[1][0, 0, 2].tolist()
    for k in range(6):
        written = float(texts[f"number:{k}"].get_text().replace("−", "-"))
        assert written == pytest.approx(numbers[k], abs=0.006)
    (frame,) = [a for a in ax.collections if a.get_gid() == "framed"]
    (joins,) = [a for a in ax.collections if a.get_gid() == "joins"]
    cells = [a for a in ax.collections if getattr(a, "role", "") == "numbers"]
    own = next(b for a in cells for (_, j), b in zip(a.places, a.corners, strict=True) if j == 2)
    assert np.allclose(frame.get_segments()[0][:, 0].min(), own[:, 0].min(), atol=1)
    assert joins.get_segments()[0][:, 1].max() < min(
        b[:, 1].min() for a in cells for b in a.corners
    )


def test_the_newest_is_framed_whether_or_not_it_is_asked_for(cached):
    named = kv.draw_numbers(cached, step=2, layer=1, column=7)
    assert named.png() == kv.draw_numbers(cached, step=2, layer=1).png()
    assert "frame" not in named.sentence


# --- what is said ---------------------------------------------------------------------------


def test_sentence_of_a_decode_step(cached):
    token = cached.label(int(cached[2].token_ids[0, 0]))
    picture = kv.draw_numbers(cached, step=2, layer=1, head=4)
    assert picture.sentence == (
        "step 2, layer 1, key/value head 1, read by query head 4: 8 keys of 22 numbers; "
        f"the newest belongs to '{token}'; 7 read from the cache, unchanged since step 1; 1 written"
    )
    assert "7 read from the cache, unchanged since step 1" in words(picture)


def test_what_changed_since_the_step_before_is_counted(model):
    run = record(model, small.prompt(6), keep=("keys",))
    run[2].kept["keys"][1][0, 0, 3] += 0.5
    said = kv.draw_numbers(run, step=2, layer=1).sentence
    assert "7 read from the cache, 1 changed since step 1" in said
    other = kv.draw_numbers(run, step=2, layer=1, head=1).sentence
    assert "7 read from the cache, unchanged since step 1" in other


def test_sentences_of_other_kinds_of_steps(model, cached):
    prefill = kv.draw_numbers(cached, layer=0).sentence
    assert prefill.endswith("; 6 written") and "since" not in prefill
    assert "head 3: 1 query of 22 numbers; " in (
        kv.draw_numbers(cached, step=1, head=3, kind="queries").sentence
    )
    plain = record(model, small.prompt(6), use_cache=False)
    assert kv.draw_numbers(plain, step=2).sentence.endswith(
        "; 8 computed, 7 of them recomputed; 7 of 7 are unchanged since step 1"
    )


def test_a_window_holds_the_last_tokens_only():
    run = record(small.gemma3(window=5), small.prompt(9))
    said = kv.draw_numbers(run, step=2, layer=0).sentence
    assert ": 5 keys of 22 numbers; " in said
    assert "4 read from the cache, unchanged since step 1" in said


def test_padding_and_empty_slots_are_not_drawn(model):
    ids, mask = small.prompt(6, 2), torch.ones(2, 6, dtype=torch.long)
    mask[1, :3] = 0
    run = record(model, ids, attention_mask=mask)
    picture = kv.draw_numbers(run, step=1, sequence=1)
    assert "sequence 1, " in picture.sentence and ": 4 keys of " in picture.sentence
    assert levels(picture).shape == (22, 4)
    static = record(model, small.prompt(6), cache_implementation="static")
    assert ": 7 keys of " in kv.draw_numbers(static, step=1).sentence


def test_without_query_heads_the_head_is_a_key_value_head(model):
    run = record(model, small.prompt(6), keep=("keys",), layers=[2])
    assert "step 0, layer 2, key/value head 1: 6 keys" in kv.draw_numbers(run, head=1).sentence
    with pytest.raises(ValueError, match="head 2: layer 2 has heads 0 to 1"):
        kv.draw_numbers(run, head=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "key"}, "kind: expected one of keys, values, queries, outputs, but got 'key'"),
        ({"step": 4}, "steps 0 to 3"),
        ({"layer": 3}, "layer 3"),
        ({"head": 6}, "head 6: layer 0 has heads 0 to 5"),
        ({"head": "0"}, "head: expected a whole number"),
        ({"sequence": 1}, "sequence 1"),
        ({"column": 9}, "column 9: expected one that is drawn, positions 0 to 5"),
        ({"column": "a"}, "column: expected a whole number"),
    ],
)
def test_what_the_recording_does_not_have_is_refused(cached, options, says):
    with pytest.raises(ValueError, match=says):
        kv.draw_numbers(cached, **options)


def test_numbers_that_were_not_kept_are_refused_with_how_to_keep_them(model):
    run = record(model, small.prompt(4), keep=("attention",))
    with pytest.raises(ValueError, match=r"keys were not kept .* keep=\('keys',\)"):
        kv.draw_numbers(run)
    with pytest.raises(ValueError, match="layer 0: values were kept of layers 1 only"):
        kv.draw_numbers(record(model, small.prompt(4), keep=("values",), layers=[1]), layer=0,
                        kind="values")  # fmt: skip


@pytest.mark.parametrize("given", [None, "run", decode()])
def test_anything_but_a_recording_is_refused(given):
    with pytest.raises(TypeError, match="expected a recording made by kv.record, but got"):
        kv.draw_numbers(given)


# --- what it looks like ---------------------------------------------------------------------


def test_the_scale_is_one_that_every_eye_sees_with_the_slit_for_the_sign():
    for sign in (-1, 1):
        scale = [style.tint_number(sign * level) for level in range(6)]
        assert min(distance(a, b) for a, b in zip(scale, scale[1:], strict=False)) > 4
        lights = [style.luminance(color) for color in scale]
        assert lights == sorted(lights, reverse=True)


def _wide():
    return record(small.llama(head_dim=128), small.prompt(4))


LOOKS = {
    "decode": lambda: kv.draw_numbers(record(small.llama(), small.prompt(6)), step=2),
    "one": lambda: kv.draw_numbers(record(small.llama(), small.prompt(1))),
    "two": lambda: kv.draw_numbers(record(small.llama(), small.prompt(1)), step=1, kind="values"),
    "query": lambda: kv.draw_numbers(
        record(small.llama(), small.prompt(5)), step=1, kind="queries"
    ),
    "128 wide": lambda: kv.draw_numbers(_wide(), step=1, kind="outputs"),
    "long": lambda: kv.draw_numbers(record(small.llama(), small.prompt(91)), kind="values"),
    "framed": lambda: kv.draw_numbers(record(small.llama(), small.prompt(6)), step=2, column=3),
    "narrow": lambda: kv.draw_numbers(record(small.llama(head_dim=2), small.prompt(5)), step=1),
}


@pytest.mark.parametrize("name", LOOKS)
def test_every_text_is_inside_readable_and_apart(name):
    picture = LOOKS[name]()
    assert picture.width <= 760 and picture.height <= 640
    check_texts(picture.figure)
    check_contrast(picture.figure)
