"""All heads of a layer: each between the keys and values that it reads, which are drawn once."""

import numpy as np
import pytest
import small
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from transformers import StaticCache

import kvviz as kv
from kvviz.drawing.marks import find_cells

EDGES = ("keys", "values", "queries", "outputs")


def record(model, n=6, n_new=4, loop=small.cached_loop):
    with kv.record(model) as run:
        loop(model, small.prompt(n), n_new)
    return run


def cells_of(ax):
    return find_cells(ax.collections)


def find_box(ax):
    """Left, top, right and bottom in pixels from the top left."""
    box, tall = ax.get_window_extent(), ax.get_figure().bbox.height
    return box.x0, tall - box.y1, box.x1, tall - box.y0


@pytest.mark.parametrize(
    ("make", "n_kv_heads", "says"),
    [
        (small.llama, 2, "each of 2 key/value heads serves 3 heads"),
        (small.multi_query, 1, "1 key/value head serves all 6 heads"),
        (lambda: small.llama(num_key_value_heads=6), 6, "each head has its own keys and values"),
    ],
)
def test_heads_lie_between_the_keys_and_values_they_read(make, n_kv_heads, says):
    picture = kv.draw_heads(record(make()), step=2, layer=1)
    heads = picture.figure.axes[:6]
    groups = picture.figure.axes[6 : 6 + n_kv_heads]
    assert all(
        {role for role, _ in cells_of(ax)} <= {"attention", "queries", "outputs"} for ax in heads
    )
    for ax in groups:
        assert {role for role, _ in cells_of(ax)} == {"keys", "values"}
        assert len(cells_of(ax)) == 2 * 8
    for head, ax in enumerate(heads):
        left, top, right, bottom = find_box(ax)
        around = find_box(groups[head // (6 // n_kv_heads)])
        assert around[0] == pytest.approx(left) and around[2] == pytest.approx(right)
        assert around[1] < top < bottom < around[3]
    assert picture.sentence.endswith(says)
    assert any(says in text.get_text() for ax in picture.figure.axes for text in ax.texts)


def test_of_one_row_only_the_row_is_drawn():
    ax = kv.draw_heads(record(small.llama()), step=2, layer=1).figure.axes[4]
    assert {place for role, place in cells_of(ax) if role == "attention"} == {
        (7, j) for j in range(8)
    }
    assert {place for role, place in cells_of(ax) if role == "queries"} == {7}


def test_of_several_rows_each_head_is_a_small_square():
    run = record(small.llama(), loop=small.plain_loop)
    ax = kv.draw_heads(run, step=2, layer=1).figure.axes[4]
    cells = cells_of(ax)
    assert {place for (role, place), state in cells.items() if state == "ink"} == {
        (p, j) for p in range(8) for j in range(p + 1)
    }
    assert [cells["queries", p] for p in range(8)] == ["recomputed"] * 7 + ["new"]


def test_too_many_rows_leave_the_newest_and_say_so():
    picture = kv.draw_heads(record(small.multi_query(), n=37), step=0, layer=1)
    assert picture.sentence.endswith("; only the newest of 37 rows drawn")
    assert {place for role, place in cells_of(picture.figure.axes[0]) if role == "queries"} == {36}


MANY = {"hidden_size": 64, "head_dim": 8, "num_attention_heads": 32}


@pytest.mark.parametrize("n_kv_heads", [1, 8, 32])
@pytest.mark.parametrize("n", [2, 6, 61])
def test_any_number_of_heads_and_columns_fits_a_page(n_kv_heads, n):
    run = record(small.llama(num_key_value_heads=n_kv_heads, **MANY), n=n, n_new=3)
    for step in (0, 2):
        picture = kv.draw_heads(run, step=step, layer=1)
        assert picture.width <= 900
        assert picture.height <= 1100 or n_kv_heads > 1, "groups of many columns make it longer"
        assert (f"columns 0 to {n + step - 41} left out" in picture.sentence) == (n + step > 41)


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("make", [small.llama, small.multi_query, small.mistral])
def test_no_two_words_overlap_and_none_is_cut(make, step):
    figure = kv.draw_heads(record(make(), n=9), step=step, layer=1).figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    upright = []
    for ax in figure.axes:
        for text in ax.texts:
            box = text.get_window_extent(renderer)
            assert box.x0 >= 0 and box.y0 >= 0, text.get_text()
            assert box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height, text.get_text()
            if not text.get_rotation():
                assert not any(box.overlaps(other) for other in upright), text.get_text()
                upright.append(box)


def test_padding_and_the_sequence_are_said():
    model, ids = small.llama(), torch.stack([small.prompt(6)[0], small.prompt(6, seed=3)[0]])
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, :2] = 0
    with torch.no_grad(), kv.record(model) as run:
        model(ids, attention_mask=mask)
    picture = kv.draw_heads(run, layer=1, sequence=1)
    assert picture.sentence.startswith("step 0, sequence 1, layer 1, ")
    cells = cells_of(picture.figure.axes[0])
    assert {place[0] for role, place in cells if role == "attention"} == {2, 3, 4, 5}


def test_room_for_later_columns_keeps_every_column_in_its_place():
    from kvviz.drawing.figures import draw_all_heads, pick_heads

    run = record(small.llama())
    early, late = (draw_all_heads(pick_heads(run, step, 1), span=9).figure for step in (1, 3))
    assert early.axes[0].get_xlim() == late.axes[0].get_xlim()
    assert np.allclose(early.get_size_inches(), late.get_size_inches())
    with pytest.raises(ValueError, match="span 3: expected at least 9"):
        draw_all_heads(pick_heads(run, 3, 1), span=3)


def test_of_a_large_static_cache_what_it_holds_is_drawn():
    model, ids = small.llama(n_positions=512), small.prompt(6)
    cache = StaticCache(config=model.config, max_cache_len=400)
    with torch.no_grad(), kv.record(model) as run:
        model(ids, cache=cache, use_cache=True)
    picture = kv.draw_heads(run, layer=1)
    cells = cells_of(picture.figure.axes[6])
    assert [cells["keys", j] for j in range(11)] == ["new"] * 6 + ["empty"] * 5
    assert len(cells) == 22 and "left out" not in picture.sentence


def test_a_square_is_one_head_only():
    run = record(small.llama())
    with pytest.raises(TypeError, match="expected a recording made by kv.record, but got one head"):
        kv.draw_heads(run[2].square(1, 0))


def test_the_heads_of_a_layer_are_shared_as_that_layer_says():
    """Layers of one model may differ in how many key/value heads they have."""
    run = record(small.gemma4(), n=6, n_new=2)
    said = [kv.draw_heads(run, step=1, layer=layer).sentence for layer in (0, 1)]
    assert "each of 3 key/value heads serves 2 heads" in said[0]
    assert "each of 2 key/value heads serves 3 heads" in said[1]


def test_a_saved_run_keeps_which_heads_share(tmp_path):
    run = record(small.llama())
    loaded = kv.Run.load(run.save(tmp_path / "run.npz"))
    for head in range(6):
        assert loaded[2].square(1, head).kv_head == run[2].square(1, head).kv_head == head // 3
