"""Under a verdict: the step that went wrong, with what differs marked, or a right run's steps."""

import loops
import numpy as np
import odd_caches
import pytest
import small
import strange_loops
import strangers
import torch

import kvviz as kv
from kvviz.checking import verdict_picture
from kvviz.checking.cache import judge_cache
from kvviz.checking.compare import SEEN
from kvviz.checking.loop import check, judge_loop, uncached_reference
from kvviz.checking.right_forge import RightForge
from kvviz.checking.verdict_picture import Mistake, Strip
from kvviz.drawing import marks, style
from kvviz.exercises.pictures import picture_of_step
from kvviz.faults import GALLERY
from kvviz.forge import Forge, KVCache


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def llama():
    return small.llama()


@pytest.fixture(scope="module")
def judge(llama):
    with torch.no_grad():
        reference = uncached_reference(llama, small.prompt(6), 6)
    return lambda loop: judge_loop(loop, llama, reference)


@pytest.fixture(scope="module")
def right():
    return RightForge()


def evidence_of(verdict):
    """What the verdict keeps for its picture."""
    return verdict.draw.args[0]


def find_marks(picture):
    """{(role, place): kind} as drawn, of each of the two squares."""
    return [
        {spot: state for spot, state in _drawn(ax).items() if state in style.FLAWS}
        for ax in picture.figure.axes[:2]
    ]


def _drawn(ax):
    flaws = [a for a in ax.collections if isinstance(a, marks.Cells) and a.state in style.FLAWS]
    return marks.find_cells(flaws)


def check_marks(verdict):
    """Each mark is on something that differs, and everything that differs has its mark.

    Compared here by position and number, without the code that finds the flaws.
    """
    found = evidence_of(verdict)
    assert isinstance(found, Mistake)
    yours, expected = find_marks(verdict.picture)
    assert yours and not expected
    ours, right, gate = found.ours, found.right, found.gate
    for role in ("keys", "values", "queries", "outputs"):
        is_column = role in ("keys", "values")
        name = {"queries": "query", "outputs": "output"}.get(role, role)
        x, y = getattr(ours, name), getattr(right, name)
        here, there = (s.columns if is_column else s.rows for s in (ours, right))
        if x is not None:
            here = here[: x.shape[1]]
        for place in {*here, *there}:
            state = yours.get((role, place))
            if place not in there:
                assert state == "extra", (role, place)
            elif place not in here or x is None:
                assert state == "missing", (role, place)
            else:
                a, b = x[:, here.index(place)], y[:, there.index(place)]
                is_equal = a.shape == b.shape and bool((a - b).abs().max() <= gate * y.abs().max())
                assert state == (None if is_equal else "wrong"), (role, place)
    for (role, place), state in yours.items():
        if role == "attention":
            row, column = place
            one, other = (s.draw_head(0).masked[s.rows.index(row), column] for s in (ours, right))
            assert state == "wrong" and one != other


@pytest.mark.parametrize("fault", GALLERY.values(), ids=GALLERY)
def test_a_faults_picture_marks_what_differs_and_nothing_else(right, fault):
    check_marks(judge_cache(right, fault.cache_class, fault.forge_class))


@pytest.mark.parametrize("length", [1, 3, 11])
def test_the_marks_are_right_on_other_prompts_too(length):
    other = RightForge(ids=small.prompt(length, seed=length))
    for name in ("written twice", "keys in front", "prefill without a mask", "stale cache"):
        fault = GALLERY[name]
        check_marks(judge_cache(other, fault.cache_class, fault.forge_class))


SOME = [*odd_caches.WRONG, *strangers.WRONG][::3]


@pytest.mark.parametrize("wrong", SOME, ids=lambda kind: kind.__name__)
def test_the_marks_are_right_in_any_cache(right, wrong):
    """Or there are none: where the mistake is in no step that attention saw."""
    verdict = judge_cache(
        right, *((KVCache, wrong) if issubclass(wrong, Forge) else (wrong, Forge))
    )
    assert not verdict.passed
    if verdict.picture is not None and isinstance(evidence_of(verdict), Mistake):
        check_marks(verdict)
    elif verdict.picture is not None:
        assert not any(find_marks(verdict.picture))


def test_an_output_that_never_came_is_missing(right):
    verdict = judge_cache(right, KVCache, odd_caches.AppendsKeysOnly)
    assert "the output of row 6 is missing" in verdict.picture.sentence


def test_a_row_that_follows_is_named_below_the_missing_one(judge):
    loop = next(loop for loop in strange_loops.WRONG if loop.__name__ == "fills_twice")
    ax = judge(loop).picture.figure.axes[0]
    names = {a.get_gid(): a.get_position()[1] for a in ax.texts if a.get_gid()}
    assert names["name:queries"] > 7 and names["name:outputs"] > 7


# -- long texts, and windows ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_verdicts():
    model, ids = small.llama(n_positions=256), small.prompt(90)
    wrong = loops.whole_sequence_fed, loops.never_passed_on, loops.starts_over
    with torch.no_grad():
        reference = uncached_reference(model, ids, 4)
        return [judge_loop(loop, model, reference) for loop in wrong]


def test_in_a_long_text_the_newest_columns_expected_are_in_the_picture(long_verdicts):
    for verdict in long_verdicts:
        newest = evidence_of(verdict).right.columns[-1]
        yours, expected = verdict.picture.figure.axes[:2]
        drawn = marks.find_cells(expected.collections)
        assert drawn["keys", newest] == "new"
        assert expected.get_xlim() == yours.get_xlim()
    words = " ".join(a.get_text() for a in long_verdicts[0].picture.figure.axes[0].texts)
    assert "columns and rows from 99 on are left out" in words
    assert "columns 91 to 180 are too many" in long_verdicts[0].picture.sentence


def test_columns_out_of_a_window_are_expected_nowhere():
    model, ids = small.mistral(), small.prompt(9)
    verdict = check(loops.position_restarts, model, ids, 6)
    assert verdict.picture.sentence.endswith("expected: 5 columns, 1 row")
    assert "missing" not in verdict.picture.sentence
    gone = check(loops.never_passed_on, model, ids, 6)
    assert "the keys and values of columns 5 to 9 are missing" in gone.picture.sentence


def test_a_latent_or_a_half_precise_model_has_its_picture():
    for model in (small.deepseek_v3(), small.llama().to(torch.bfloat16)):
        verdict = check(loops.position_restarts, model, small.prompt(6), 4)
        assert "in column 6 is wrong" in verdict.picture.sentence


def test_every_kind_of_fault_shows_where_it_is(right):
    said = {
        "position restarts": "the key of '17' in column 6 is wrong",
        "own key left out": "1 cell that should be seen is masked",
        "prefill without a mask": "21 cells that should be masked can be seen",
        "new token not appended": "the key and value of '17' in column 6 are missing",
        "written twice": "column 6 holds '10', expected '17'",
        "keys and values in front": "column 0 holds '17', expected '7'",
        "stale cache": "the keys and values of columns 6 to 12 are too many",
        "cache never read": "rows 0 to 5 should not be there",
        "kept in bfloat16": "the keys and values of columns 0 to 5 are wrong",
    }
    for name, words in said.items():
        fault = GALLERY[name]
        sentence = judge_cache(right, fault.cache_class, fault.forge_class).picture.sentence
        assert words in sentence, sentence


OF_A_STEP = {
    loops.whole_sequence_fed: "the keys and values of columns 7 to 12 are too many",
    loops.never_passed_on: "the keys and values of columns 1 to 6 are missing",
    loops.never_read: "7 columns, 7 rows; rows 0 to 5 should not be there",
    loops.prompts_last_token_fed: "column 6 holds '32', expected '91'",
    loops.two_tokens_fed: "row 7 should not be there",
    loops.position_not_advanced: "step 2, layer 0, head 2: 8 columns, 1 row; the key of '21' in",
    loops.position_restarts: "the key of '91' in column 6 is wrong",
    loops.over_the_rows: "column 6 holds '2', expected '91'",
    loops.every_rows_choice: "the keys and values of columns 7 to 11 are too many",
    loops.prompt_reversed: "column 0 holds '32', expected '49'",
    loops.prompt_token_skipped: "column 4 holds '32', expected '72'",
    loops.starts_over: "the keys and values of columns 6 to 8 are missing",
}


@pytest.mark.parametrize("loop", OF_A_STEP, ids=lambda loop: loop.__name__)
def test_a_loops_wrong_step_is_marked(judge, loop):
    verdict = judge(loop)
    check_marks(verdict)
    assert OF_A_STEP[loop] in verdict.picture.sentence, verdict.picture
    if verdict.step is not None:
        assert f"step {verdict.step}, " in verdict.picture.sentence


@pytest.mark.parametrize("loop", strange_loops.WRONG, ids=lambda loop: loop.__name__)
def test_a_strangers_wrong_step_is_marked(judge, loop):
    check_marks(judge(loop))


@pytest.mark.parametrize("loop", loops.WRONG, ids=lambda loop: loop.__name__)
def test_where_no_step_is_wrong_the_steps_are_shown_without_marks(judge, loop):
    verdict = judge(loop)
    if loop in OF_A_STEP:
        return
    if loop is loops.never_calls:
        assert verdict.picture is None
    else:
        assert isinstance(evidence_of(verdict), Strip)
        assert verdict.picture.sentence.startswith("your run, layer ")
        assert not any(find_marks(verdict.picture))


# -- what is right -------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", loops.RIGHT, ids=lambda loop: loop.__name__)
def test_a_right_loop_is_shown_as_it_ran(judge, loop):
    verdict = judge(loop)
    assert verdict.passed and not any(find_marks(verdict.picture))
    rows = [len(seen.rows) for seen in evidence_of(verdict).steps]
    assert f"rows computed {', '.join(map(str, rows))}" in verdict.picture.sentence


def test_what_was_saved_is_told_in_the_learners_own_numbers(judge, right):
    says = "11 rows instead of 51: each column of the big triangle was computed once"
    assert judge(loops.right).savings == says and says in judge(loops.right)._repr_html_()
    assert says not in repr(judge(loops.right))
    more = "12 rows instead of 51, which is what a loop without a cache computes"
    assert judge(loops.last_token_fed_too).savings == more
    assert judge_cache(right, KVCache, Forge).savings.startswith("17 rows instead of 138")
    assert not judge(loops.never_read).savings


def test_a_right_caches_steps_are_shown(right):
    verdict = judge_cache(right, KVCache, Forge)
    assert "the first 6 of 12 steps: rows computed 6, 1, 1, 1, 1, 1" in verdict.picture.sentence


@pytest.mark.parametrize("kind", [small.llama, small.gpt2, small.gpt_neox, small.mistral])
def test_the_shares_drawn_are_those_that_the_model_computed(kind):
    model, ids = kind(), small.prompt(6)
    strip = evidence_of(check(loops.right, model, ids, 4))
    with kv.record(model) as run:
        loops.right(model, ids, 4)
    for step, seen in zip(run, strip.steps, strict=True):
        expected = step.square(seen.blank.layer, head=1)
        drawn = seen.draw_head(1)
        assert np.allclose(drawn.weights, expected.weights, atol=1e-5, equal_nan=True)
        assert np.array_equal(drawn.masked, expected.masked)


def test_attention_of_another_kind_is_drawn_without_shares(judge):
    """Attention sinks: the softmax of queries and keys alone doesn't give the output."""
    verdict = check(loops.right, small.gpt_oss(), small.prompt(6), 4)
    assert verdict.passed and evidence_of(verdict).steps[0].attention is None
    assert "attention:not kept" in {
        a.get_gid() for ax in verdict.picture.figure.axes for a in ax.collections
    }


# -- how it is shown -----------------------------------------------------------------------------


def test_the_page_shows_the_picture_under_the_words_and_the_text_does_not(judge):
    verdict = judge(loops.position_restarts)
    page = verdict._repr_html_()
    assert page.index("</table>") < page.index('<img alt="yours: step 1, layer 0')
    assert "data:image/png;base64," in page and "yours:" not in repr(verdict)


def test_a_picture_is_drawn_only_when_it_is_looked_at(judge, monkeypatch):
    drawn = []
    monkeypatch.setattr(Mistake, "draw", lambda self: drawn.append(self))
    verdict = judge(loops.position_restarts)
    assert repr(verdict) and not drawn
    assert verdict.picture is None and verdict.picture is None and len(drawn) == 1


@pytest.mark.parametrize("part", ["find", "draw"])
def test_whatever_prevents_a_picture_leaves_the_verdict(judge, monkeypatch, part):
    def fails(*_):
        raise RuntimeError

    if part == "draw":
        monkeypatch.setattr(Mistake, "draw", fails)
    else:
        monkeypatch.setattr("kvviz.checking.loop.find_loop_picture", fails)
    verdict = judge(loops.position_restarts)
    assert verdict.picture is None and "<img" not in verdict._repr_html_()
    assert verdict.cause == "position not advanced"


def test_a_verdict_keeps_little(judge, right, monkeypatch):
    """One layer of one step, or of six: never the whole recording."""

    def count(seen):
        return sum(x.numel() for x in (seen.query, seen.keys, seen.values, seen.output))

    found = evidence_of(judge(loops.right))
    assert len(found.steps) <= 6
    assert sum(map(count, found.steps)) < 20_000
    monkeypatch.setattr(verdict_picture, "LARGEST", 100)
    assert judge(loops.right).picture is None and judge(loops.position_restarts).picture is None


def test_an_error_before_the_first_step_has_no_picture(judge):
    def raises(model, ids, n):
        raise ValueError

    assert judge(raises).picture is None

    class Raises(KVCache):
        def __init__(self):
            super().__init__(4)

    assert kv.check_cache(Raises).picture is None


def test_flaws_differ_in_shape_and_not_by_hue_alone():
    shapes = {}
    for kind in style.FLAWS:
        drawn = marks.make_flaw("keys", kind, [0], [0])
        shapes[kind] = [p.vertices.round(3).tolist() for a in drawn[1:] for p in a.get_paths()]
    assert len({str(shape) for shape in shapes.values()}) == len(style.FLAWS)
    assert style.contrast(style.ALARM, style.PAPER) >= 4.5


def test_the_legend_names_the_flaws_that_are_drawn(judge):
    picture = judge(loops.whole_sequence_fed).picture
    words = {text.get_text() for text in picture.figure.axes[-1].texts}
    assert {"wrong", "too many"} <= words and "missing" not in words


def test_the_two_squares_have_the_same_geometry(judge):
    for loop in (loops.whole_sequence_fed, loops.starts_over, loops.never_passed_on):
        left, right = judge(loop).picture.figure.axes[:2]
        assert left.get_xlim() == right.get_xlim() and left.get_ylim() == right.get_ylim()
        titles = [ax.texts for ax in (left, right)]
        assert "Yours" in {t.get_text() for t in titles[0]}
        assert "Expected" in {t.get_text() for t in titles[1]}


def test_on_the_default_model(default_model):
    model, tokenizer = default_model
    ids = tokenizer("The first law of motion states", return_tensors="pt").input_ids
    reference = uncached_reference(model, ids, 4)
    for loop in (loops.prompts_last_token_fed, loops.position_not_advanced, loops.starts_over):
        check_marks(judge_loop(loop, model, reference))
    sentence = judge_loop(loops.prompts_last_token_fed, model, reference).picture.sentence
    assert "column 6 holds ' states', expected ' that'" in sentence
    forge = RightForge(model, ids, 4)
    for name in ("written twice", "keys in front", "own key left out"):
        check_marks(judge_cache(forge, *GALLERY[name][2:4]))


# -- for the exercises ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(llama):
    """One run without a cache, and three with it: with attention, with what it saw, and counts."""
    with torch.no_grad(), kv.record(llama) as uncached:
        llama.generate(small.prompt(6), max_new_tokens=4, do_sample=False, use_cache=False)
    made = [uncached]
    for keep in (("attention",), SEEN, ()):
        with torch.no_grad(), kv.record(llama, keep=keep) as run:
            llama.generate(small.prompt(6), max_new_tokens=4, do_sample=False)
        made.append(run)
    return made


def test_a_step_is_drawn_of_any_recording(runs):
    for run in runs:
        picture = picture_of_step(run[1])
        assert picture.sentence.startswith("step 1, layer ")
    assert picture_of_step(runs[0][1], title="Yours").figure.axes[0].texts
    assert "attention was not kept" in picture_of_step(runs[3][1]).sentence
    assert "attends most" in picture_of_step(runs[2][1]).sentence


def test_a_step_beside_the_right_one_has_its_flaws_marked(runs):
    for right in runs[1:]:
        picture = picture_of_step(runs[0][1], right[1])
        assert picture.sentence.startswith("yours: step 1")
        assert "rows 0 to 5 should not be there" in picture.sentence
        yours = find_marks(picture)[0]
        assert {row for role, row in yours if role == "queries"} == {*range(6)}
        assert not {role for role, _ in yours} & {"keys", "values"}


def test_equal_steps_are_drawn_alone_and_what_is_no_step_is_not_drawn(runs):
    for run in runs:
        assert not picture_of_step(run[1], run[1]).sentence.startswith("yours")
    assert picture_of_step(None) is None and picture_of_step(runs[0][1], "no") is None
