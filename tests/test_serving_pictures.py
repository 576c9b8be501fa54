"""Pictures of a serving engine show what its steps hold, and their sentences say the same."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import servings
import small
from test_colours import APART, FAR, check_contrast, distance
from texts_apart import check_texts
from transformers import ContinuousBatchingConfig, GenerationConfig

import kvviz as kv
from kvviz.drawing import pass_facts, style
from kvviz.drawing.marks import find_cells
from kvviz.drawing.requests import PATTERNS, choose_looks, list_names

SHARED, CHUNKED, CROWDED = servings.shared_prefix(), servings.chunked(), servings.crowded()
STATIC = {"sky": [13, 1, 1, 1], "sea": [29, 1], "sun": [0] * 4 + [71, 1]}
PADDING = {"sky": [16], "sea": [0, 0, 1, 1]}


def attending(steps, layer=1, n_heads=3):
    """The same steps, with attention that was kept for one layer."""
    kept = []
    for step in steps:
        visible = step.find_visible(layer)
        shares = np.random.default_rng(step.index).random((n_heads, *visible.shape)) * visible
        shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
        kept.append(replace(step, attention={layer: shares}))
    return kept


@pytest.fixture(scope="module")
def served():
    """A run of the library's engine: a shared beginning, chunks, and too few pages."""
    model, ids = small.llama(n_positions=200), small.prompt(19)[0].tolist()
    pages = ContinuousBatchingConfig(page_size=4, num_blocks=11, max_batch_tokens=16)
    settings = GenerationConfig(max_new_tokens=8, eos_token_id=-1, do_sample=False)
    with kv.record_serving(model, keep=("attention",), layers=[1]) as run:
        model.generate_batch(
            [ids, ids[:13] + ids[:4], ids[:9] + ids[:3]],
            generation_config=settings,
            continuous_batching_config=pages,
            progress_bar=False,
        )
    for what in ("preempted", "shared", "cached", "idle"):
        assert any(getattr(step, what) for step in run), what
    return run


def canvas(picture):
    return picture.figure.axes[0]


def cells(picture):
    return find_cells(canvas(picture).collections)


def texts(picture):
    return {each.get_gid(): each.get_text() for each in canvas(picture).texts if each.get_gid()}


# --- pages ----------------------------------------------------------------------------------


def check_pages(steps, index):
    """Every cell of every page is drawn as the step has it."""
    step, drawn = steps[index], cells(kv.draw_pages(steps, step=index))
    written = {
        (each.pages[position // step.page_size], position % step.page_size)
        for each in step.requests
        for position in each.positions
    }
    for page in step.owners:
        for cell in range(step.page_size):
            state = "read" if cell < step.fill[page] else "empty"
            assert drawn["page", (page, cell)] == ("new" if (page, cell) in written else state)
    for page in step.cached:
        assert drawn["page", (page, 0)] == "cached"
    for page in step.free:
        assert drawn["page", page] == "free"
    pages = {
        place if isinstance(place, int) else place[0] for role, place in drawn if role == "page"
    }
    assert pages == {*step.owners, *step.cached, *step.free}


@pytest.mark.parametrize("steps", [SHARED, CHUNKED, CROWDED], ids=["shared", "chunked", "crowded"])
def test_every_cell_of_every_page_is_drawn_as_the_step_has_it(steps):
    for index in (0, len(steps) // 2, len(steps) - 1):
        check_pages(steps, index)


def test_the_engines_own_pages_are_drawn_as_its_steps_have_them(served):
    steps = [step.index for step in served if step.preempted or step.shared or step.cached]
    for index in (0, steps[0], steps[-1]):
        check_pages(served, index)


def test_a_page_table_lists_a_requests_pages_in_order_of_positions():
    drawn = cells(kv.draw_pages(SHARED, step=3))
    for request in SHARED[3].holding:
        entries = {
            place[1]: place[2]
            for role, place in drawn
            if role == "entry" and place[0] == place[3] == request.name
        }
        assert entries == dict(enumerate(request.pages))
    assert texts(kv.draw_pages(SHARED, step=3))["entry:sea:0"] == str(
        SHARED[3].requests[1].pages[0]
    )


def test_a_shared_page_has_a_band_and_a_letter_for_each_owner():
    picture = kv.draw_pages(SHARED, step=3)
    drawn, page = cells(picture), next(iter(SHARED[3].shared))
    assert drawn["page", (page, 0)] == drawn["page:1", (page, 0)] == "read"
    entries = {place for role, place in drawn if role == "entry" and place[2] == page}
    assert {(place[0], place[3]) for place in entries} == {
        (one, other) for one in ("sky", "sea") for other in ("sky", "sea")
    }
    letters = [each for each in canvas(picture).texts if each.get_gid() == "letter:sea"]
    assert len(letters) == 1 + len(SHARED[3].request("sea").pages)


def test_the_sentence_of_pages_says_who_holds_what_and_what_is_shared():
    assert repr(kv.draw_pages(SHARED, step=3)) == (
        "step 3: 7 of 16 pages of 8 cells in use, 4 of their cells empty; "
        "sky holds 32 tokens in pages 17, 16, 15, 14, 1 row written; "
        "sea holds 30 tokens in pages 17, 16, 15, 13, 1 row written; "
        "sun holds 14 tokens in pages 12, 11, 1 row written; "
        "pages 15, 16 and 17 shared by sky and sea; 9 pages free"
    )
    assert "sea: put back: waiting again; sun: waiting" in repr(kv.draw_pages(CROWDED, step=3))
    assert "sky: finished" in repr(kv.draw_pages(SHARED, step=7))


def test_the_example_finds_the_newest_token_where_it_lies():
    said = texts(kv.draw_pages(SHARED, step=4))["example"]
    request = SHARED[4].requests[0]
    assert said == (
        f"For example, sky's newest token is at position 32 = 4 × 8 + 0: "
        f"entry 4 says page {request.pages[4]}, cell 0."
    )


def test_a_request_keeps_its_letter_and_its_line_from_step_to_step():
    lines = set()
    for step in range(len(CROWDED)):
        names = [t for t in canvas(kv.draw_pages(CROWDED, step=step)).texts]
        at = {
            t.get_gid(): t.get_position() for t in names if (t.get_gid() or "").startswith("name")
        }
        lines.add(tuple(sorted(at.items())))
    assert len(lines) == 1


def test_of_many_pages_the_free_ones_are_left_out_and_it_says_so():
    steps = servings.serve({"a": 500}, [{"a": 500}], page_size=16, n_pages=900)
    picture = kv.draw_pages(steps)
    assert "828 pages not drawn" in texts(picture)["summary"]
    drawn = {
        place[0]
        for (role, place), state in cells(picture).items()
        if state == "new" and role == "page"
    }
    assert drawn == {*steps[0].owners}
    assert texts(picture)["left out"] == "…"
    assert picture.width < 960


# --- the schedule ---------------------------------------------------------------------------


def test_a_schedule_draws_each_phase_where_the_run_has_it():
    drawn = cells(kv.draw_schedule(CROWDED))
    names = list_names(CROWDED)
    for step in CROWDED:
        for request in step.holding:
            state = drawn["schedule", (names.index(request.name), step.index)]
            assert state == request.phase or (state == "again" and request.name == "sea")
        for name in step.waiting:
            state = "put back" if name in step.preempted else "waiting"
            assert drawn["schedule", (names.index(name), step.index)] == state
    assert drawn["schedule", (names.index("sea"), 6)] == "again"


def test_the_sentence_of_a_schedule_says_who_is_fed_what_and_how_long_each_waits():
    assert repr(kv.draw_schedule(CROWDED)) == (
        "3 requests, 10 steps, 69 rows: "
        "sea: 15, 1 (twice), put back, waiting (twice), 18 again, 1 (3 times), "
        "first token after 1 step, at most 4 steps between tokens; "
        "sky: 14, 1 (5 times), first token after 1 step, at most 1 step between tokens; "
        "sun: waiting (6 times), 9, 1 (3 times), "
        "first token after 7 steps, at most 1 step between tokens; "
        "rows in each step: 29, 2 (twice), 1 (3 times), 27, 2 (3 times)"
    )


def test_waits_can_be_counted_in_rows():
    said = repr(kv.draw_schedule(CHUNKED, by="row"))
    assert "sun: waiting, 21, 30, 20, 1 (4 times), first token after 118 rows" in said
    assert texts(kv.draw_schedule(CHUNKED, by="row"))["wait:2:0"] == "118"
    assert texts(kv.draw_schedule(CHUNKED))["wait:2:0"] == "4"


def as_numbers(steps):
    """{request: rows in each step} of a run in which nobody is put back."""
    table = {}
    for name in list_names(steps):
        rows = [sum(r.rows for r in step.requests if r.name == name) for step in steps]
        here = [name in step.waiting or any(r.name == name for r in step.holding) for step in steps]
        first = here.index(True)
        table[name] = [None] * first + rows[first:]
    return table


@pytest.mark.parametrize("steps", [SHARED, CHUNKED], ids=["shared", "chunked"])
@pytest.mark.parametrize("by", ["step", "row"])
def test_a_schedule_as_numbers_says_the_same_as_the_run(steps, by):
    table = as_numbers(steps)
    assert repr(kv.draw_schedule(table, by=by)) == repr(kv.draw_schedule(steps, by=by))
    assert cells(kv.draw_schedule(table)) == cells(kv.draw_schedule(steps))


def test_a_prompts_length_says_which_single_row_is_still_its_own():
    table = {"a": [1, 1, 1, 1]}
    assert "first token after 1 step" in repr(kv.draw_schedule(table))
    picture = kv.draw_schedule(table, prompts={"a": 3})
    assert "first token after 3 steps" in repr(picture)
    assert [cells(picture)["schedule", (0, step)] for step in range(4)] == [
        "chunk",
        "chunk",
        "prefill",
        "decode",
    ]


def test_padding_counts_as_work_and_gives_no_token():
    picture = kv.draw_schedule(STATIC, padding=PADDING, title="Static")
    assert "sky: 13 and 16 thrown away, 1 (3 times)" in repr(picture)
    assert "sea: 29, 1, 1 thrown away (twice), first token after 1 step" in repr(picture)
    assert "rows in each step: 58, 2 (3 times), 71, 1" in repr(picture)
    drawn = cells(picture)
    assert drawn["padding", (0, 0)] == drawn["padding", (1, 2)] == "padding"
    assert ("schedule", (1, 2)) not in drawn
    tokens = [a for a in canvas(picture).collections if a.get_gid() == "token"]
    assert len(tokens) == 3 + 1 + 1 + 1  # with one in the legend


def test_a_wider_step_has_more_rows():
    picture = kv.draw_schedule(CHUNKED, by="row")
    wide = {}
    for artist in canvas(picture).collections:
        if getattr(artist, "role", "") == "schedule":
            box = artist.corners[0][:, 0]
            wide[artist.places[0][1]] = box.max() - box.min() + 2
    rows = {step.index: step.rows for step in CHUNKED}
    assert np.allclose([wide[i] / wide[0] for i in rows], [rows[i] / rows[0] for i in rows])


def test_a_narrow_step_keeps_its_number_if_there_is_room_for_it():
    totals = [29, 3, 3, 62, 8, 4, 4, 3, 2, 2]
    written = texts(kv.draw_schedule({"a": totals}, by="row"))
    assert [written.get(f"step:{i}") for i in range(10)] == [*"0123456789"]
    assert [written.get(f"total:{i}") for i in range(10)] == [*map(str, totals)]


# --- a whole pass ---------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_a_pass_draws_each_key_once_and_each_request_sees_its_own(keep):
    steps = attending(SHARED) if keep else SHARED
    step, drawn = steps[2], cells(kv.draw_pass(steps, step=2))
    places = {(c.page, c.cell): c for c in step.list_columns()}
    keys = {place for role, place in drawn if role == "keys"}
    assert len(keys) == len(places) < len(step.list_columns())
    seen = "ink" if keep else "visible"
    for row, own in enumerate(step.list_rows()):
        states = {j: drawn["pass", (row, j)] for j in keys}
        n = sum(state == seen for state in states.values())
        assert n == own.position + 1
        held = step.request(own.request).held
        assert sum(state != "other" for state in states.values()) == held


def test_the_sentence_of_a_pass_counts_what_each_request_sees():
    assert repr(kv.draw_pass(SHARED, step=2)) == (
        "step 2: 19 rows by 49 columns; 24 columns shared, drawn once; "
        "no row sees a column that isn't its own request's; "
        "sky: 1 row sees 31 columns, 1 written now; sea: 5 rows see 29 columns, 5 written now; "
        "sun: 13 rows see 13 columns, 13 written now; 24 columns shared by sky and sea; "
        "attention was not kept"
    )


def test_a_row_that_reads_anothers_column_is_seen():
    steps = attending(CHUNKED)
    leak = steps[1].attention[1].copy()
    leak[2, 0, -1] = 0.25  # the first request's row, the last one's column
    steps[1] = replace(steps[1], attention={1: leak})
    assert "no row sees a column that isn't its own" in repr(kv.draw_pass(steps, step=1, head=0))
    said = repr(kv.draw_pass(steps, step=1, head=2))
    assert "in 1 cell, a row sees a column that isn't its own request's" in said


def test_the_ink_is_the_engines_own_attention(served):
    index = max(range(len(served)), key=lambda i: len(served[i].requests))
    one = pass_facts.read_pass(served, index, 1, 4)
    kept = served[index].attention[1][4]
    assert np.allclose(one.weights.sum(1), kept.sum(1)) and not one.crossings
    picture = kv.draw_pass(served, step=index, layer=1, head=4)
    ink = [a for a in canvas(picture).collections if getattr(a, "state", "") == "ink"]
    assert sum(len(each.places) for each in ink) == int(served[index].find_visible(1).sum())
    assert picture.sentence.startswith(f"step {index}, layer 1, head 4: ")


# --- waste ----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [SHARED, CHUNKED, CROWDED], ids=["shared", "chunked", "crowded"])
def test_waste_in_pages_is_what_the_step_counts(steps):
    for step in steps:
        said = kv.draw_waste(steps, step=step.index, slab=100).sentence
        assert f"cells: {step.held_cells:,} of {step.allocated_cells:,} cells filled" in said
        held = sum(each.held for each in step.holding)
        assert f"request: {held:,} of {100 * len(step.holding):,} cells filled" in said


def test_a_slab_is_as_long_as_the_longest_text_unless_it_is_said():
    assert "a slab of 34 cells" in kv.draw_waste(SHARED, step=3).sentence
    assert "sea holds 30 tokens: 34 empty in its slab, 2 in its pages, 24 of them shared" in (
        kv.draw_waste(SHARED, step=3, slab=64).sentence
    )
    with pytest.raises(ValueError, match="slab: expected at least 32, which 'sky' holds"):
        kv.draw_waste(SHARED, step=3, slab=31)


# --- what is refused ------------------------------------------------------------------------

DRAW = [kv.draw_pages, kv.draw_pass, kv.draw_waste]


@pytest.mark.parametrize("draw", [*DRAW, kv.draw_schedule])
def test_only_a_recording_of_an_engine_is_drawn(draw):
    for given in (3, "run", [1, 2]):
        with pytest.raises(TypeError, match="expected a recording made by kv.record_serving"):
            draw(given)


@pytest.mark.parametrize("draw", DRAW)
def test_a_missing_step_is_refused_with_those_there_are(draw):
    with pytest.raises(ValueError, match="step 8: this recording has steps 0 to 7"):
        draw(SHARED, step=8)
    with pytest.raises(ValueError, match="step: expected a whole number, but got 1.0"):
        draw(SHARED, step=1.0)


@pytest.mark.parametrize(
    ("table", "options", "says"),
    [
        ({}, {}, "at least one request"),
        ({"a": []}, {}, "at least one step"),
        ({"a": 3}, {}, "'a': expected the rows in each step, but got 3"),
        ({"a": [1.5]}, {}, "'a': expected a whole number of at least 0, but got 1.5"),
        ({"a": [-1]}, {}, "'a': expected a whole number of at least 0, but got -1"),
        ({"a": [1]}, {"padding": {"b": [1]}}, "padding: expected the name of a request"),
        ({"a": [1]}, {"prompts": {"b": 1}}, "prompts: expected the name of a request"),
        ({"a": [1]}, {"prompts": {"a": 0}}, "prompts, 'a': expected a whole number of at least 1"),
        ({"a": [1]}, {"by": "second"}, 'by: expected "step" or "row", but got \'second\''),
        ({"a": [1]}, {"step": 1}, "step 1: this schedule has steps 0 to 0"),
        (SHARED, {"padding": {"a": [1]}}, "padding: expected only with"),
        ([], {}, "at least one step"),
    ],
)
def test_anything_but_rows_in_each_step_is_refused(table, options, says):
    with pytest.raises(ValueError, match=says):
        kv.draw_schedule(table, **options)


def test_a_layer_or_head_that_was_not_kept_is_refused():
    steps = attending(SHARED)
    with pytest.raises(ValueError, match="layer 0: attention was kept for layers 1"):
        kv.draw_pass(steps, layer=0)
    with pytest.raises(ValueError, match="head 3: layer 1 has heads 0 to 2"):
        kv.draw_pass(steps, head=3)


# --- how they look --------------------------------------------------------------------------

NAMES = ["a request with a very long name", "req_1", "語", "d", "e", "f", "g", "h"]
MANY = servings.serve(
    {name: 40 + 9 * i for i, name in enumerate(NAMES)},
    [{name: 40 + 9 * i for i, name in enumerate(NAMES)}, dict.fromkeys(NAMES, 1)],
    page_size=16,
    n_pages=60,
    shared={name: (NAMES[0], 2) for name in NAMES[1:4]},
)
PICTURES = {
    "pages": lambda: kv.draw_pages(SHARED, step=7),
    "crowded": lambda: kv.draw_pages(CROWDED, step=3),
    "small": lambda: kv.draw_pages(servings.serve({"a": 5}, [{"a": 5}], page_size=4, n_pages=4)),
    "many": lambda: kv.draw_pages(MANY, step=1),
    "schedule": lambda: kv.draw_schedule(CROWDED, step=6),
    "rows": lambda: kv.draw_schedule(CHUNKED, by="row"),
    "static": lambda: kv.draw_schedule(STATIC, padding=PADDING),
    "pass": lambda: kv.draw_pass(attending(SHARED), step=2),
    "decode": lambda: kv.draw_pass(MANY, step=1),
    "waste": lambda: kv.draw_waste(SHARED, step=3, slab=64),
    "slabs": lambda: kv.draw_waste(MANY, slab=2048),
}


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_cut_off_no_two_texts_overlap_and_all_can_be_read(name):
    figure = PICTURES[name]().figure
    check_texts(figure, closer=1.5, rotated=True)
    check_contrast(figure)


def test_requests_differ_in_letter_colour_and_pattern():
    looks = choose_looks(map(str, range(len(style.REQUESTS)))).values()
    assert len(PATTERNS) == len(style.REQUESTS)
    for one, other in combinations(looks, 2):
        assert one.letter != other.letter and one.color != other.color
        assert one.pattern != other.pattern
    for look in looks:
        assert style.contrast(look.color, style.PAPER) >= 4.5  # its letter, and its pattern
        assert style.contrast(look.color, style.fill_request(look.color, False)) >= 3


@pytest.mark.parametrize("color", style.REQUESTS)
def test_every_eye_can_tell_written_now_from_earlier_and_both_from_kept_and_empty(color):
    new, read = (style.fill_request(color, now) for now in (True, False))
    assert distance(new, read) > FAR and distance(read, style.PAPER) > APART
    assert distance(read, style.KEPT) > FAR


def test_requests_that_come_together_go_by_name_and_others_as_they_come():
    names = [f"req_{n}" for n in (10, 9, 2)]
    steps = servings.serve(dict.fromkeys(names, 5), [{name: 5} for name in names])
    assert list_names(steps) == ["req_2", "req_9", "req_10"]
    assert list_names(SHARED) == ["sky", "sea", "sun"]
