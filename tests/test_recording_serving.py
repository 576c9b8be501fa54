"""A serving engine's passes, recorded: the engine's own state, its texts, and a clean end."""

import _thread
import gc
import logging
import signal
import threading
import time
import weakref
from dataclasses import replace

import engine_truth
import numpy as np
import pytest
import small
import torch
from engine_truth import configure, serve_randomly

import kvviz as kv
from kvviz.recording import serving_storage
from kvviz.recording.recorder import record
from kvviz.recording.serving import record_serving
from kvviz.recording.serving_run import ServingRun

SCHEDULES = 20
MODELS = {"llama": small.llama, "gemma3": small.gemma3}


@pytest.fixture(scope="module")
def models():
    return {name: build() for name, build in MODELS.items()}


@pytest.fixture(scope="module", autouse=True)
def _little_garbage():
    """Each engine collects garbage when it ends: it needn't go through what was there before."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def llama(models):
    return models["llama"]


def prompt(n_tokens, seed=0):
    return small.prompt(n_tokens, seed=seed)[0].tolist()


def serve(model, prompts, n_new=4, **changes):
    """The library's own call; returns {name: tokens}."""
    outputs = model.generate_batch(prompts, **configure(n_new, **changes))
    return {name: each.generated_tokens for name, each in outputs.items()}


def threads():
    """All threads, but the one in which tqdm, which the library uses, watches its bars."""
    return {each for each in threading.enumerate() if each.name != "tqdm_monitor"}


@pytest.fixture(autouse=True)
def _clean(models):
    """Whatever happens, no thread outlives the block, and the models are as they were."""
    before = threads()
    yield
    assert threads() == before
    for model in models.values():
        assert model.config._attn_implementation == "sdpa"
        assert not model._forward_pre_hooks and not model._forward_hooks
        assert not hasattr(model, "_cached_continuous_batching_manager")
    assert not logging.getLogger("ContinuousBatchingLogger").filters


# -- against the engine ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schedules(models):
    """Random schedules, each checked against the engine's state at every step."""
    runs = []
    for seed in range(SCHEDULES):
        name = [*MODELS][seed % 2]
        runs.append(serve_randomly(models[name], seed))
    return runs


def test_every_step_of_random_schedules_is_what_the_engine_knows(schedules):
    assert len(schedules) == SCHEDULES and sum(len(run) for run, _ in schedules) > 200


def test_the_schedules_show_everything_that_an_engine_does(schedules):
    steps = [step for run, _ in schedules for step in run]
    phases = {each.phase for step in steps for each in step.holding}
    assert phases == {"chunk", "prefill", "decode", "idle"}
    for name in ("shared", "cached", "lent", "waiting", "preempted", "finished"):
        assert any(getattr(step, name) for step in steps), name
    assert {room for _, room in schedules} == {True, False}
    assert {step.page_size for step in steps} == {4, 8, 16}


def test_the_texts_are_those_of_generate(llama):
    prompts = [prompt(n, seed=n) for n in (29, 30, 5)]
    with record_serving(llama) as run:
        texts = serve(llama, prompts, n_new=7)
    for ids, tokens in zip(prompts, texts.values(), strict=True):
        alone = llama.generate(torch.tensor([ids]), max_new_tokens=7, do_sample=False)
        assert alone[0, len(ids) :].tolist() == tokens
    assert {each.name: [*each.new_ids] for each in run.requests} == texts


def test_a_step_does_not_change_when_the_engine_goes_on(llama):
    texts = []

    def copy_steps(index, manager):
        texts.append([repr(vars(step)) for step in run])

    with engine_truth.watch_engine(copy_steps), record_serving(llama) as run:
        serve(llama, [prompt(9), prompt(13, seed=1)])
    last = [repr(vars(step)) for step in run]
    assert len(texts) == len(run) and all(each == last[: len(each)] for each in texts)


# -- what a run shows -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(llama):
    """Three prompts that begin alike, one after the other, in nine pages of eight."""
    prompts = [prompt(24) + prompt(n, seed=n) for n in (5, 5, 6)]
    with record_serving(llama) as run:
        serve(llama, prompts, n_new=12, num_blocks=9)
    return run


def test_chunks_end_in_a_prefill_and_then_it_decodes(shared):
    first, second = shared[:2]
    assert [(each.rows, each.phase) for each in first.requests] == [(30, "prefill"), (2, "chunk")]
    phases = [each.phase for each in second.requests]
    assert phases == ["decode", "prefill", "chunk"]
    assert (first.rows, first.waiting) == (32, ("req_1",))


def test_shared_pages_are_counted_once(shared):
    step = shared[2]
    assert [len(names) for names in step.shared.values()] == [3, 3, 3]
    assert step.allocated_cells == 8 * len(step.owners)
    own = sum(each.held for each in step.holding)
    assert step.held_cells == own - 2 * 24  # two of the three need no cells for the beginning
    assert step.wasted_cells == step.allocated_cells - step.held_cells


def test_the_table_has_a_line_a_step_and_says_what_happened(shared):
    lines = repr(shared).splitlines()
    assert len(lines) == len(shared) + 2
    assert "req_2 30 prefill, req_0 2 chunk" in lines[1] and lines[1].endswith("waiting req_1")
    assert any(line.endswith("idle req_1") for line in lines)
    assert "done req_2" in repr(shared)
    assert lines[-1] == "24 steps, 3 requests, 97 rows computed, 9 pages of 8 tokens"
    assert shared._repr_html_().count("<tr>") == len(shared) + 1


def test_a_run_without_an_engine_says_so(llama):
    with record_serving(llama) as run:
        llama.generate(small.prompt(3), max_new_tokens=2, do_sample=False)
    assert len(run) == 0 and "no engine ran" in repr(run) and not run.requests


def test_two_engines_in_one_block_are_told_apart(llama):
    with record_serving(llama) as run:
        for n in (5, 9):
            serve(llama, [prompt(n)], n_new=3)
    assert [step.index for step in run] == [*range(6)]
    assert [step.engine for step in run] == [0, 0, 0, 1, 1, 1]
    assert [(each.name, each.engine, each.fed) for each in run.requests] == [
        ("req_0", 0, (0, 1, 2)),
        ("req_0", 1, (3, 4, 5)),
    ]
    assert len(run.find_request("req_0", step=4).prompt_ids) == 9
    with pytest.raises(ValueError, match="2 requests are named 'req_0'"):
        run.find_request("req_0")
    with pytest.raises(ValueError, match="no request 'sky'.*has req_0"):
        run.find_request("sky")


def test_one_name_given_twice_is_two_requests(llama):
    with record_serving(llama) as run:
        with llama.continuous_batching_context_manager(**configure(3)) as manager:
            for n in (5, 9):
                manager.add_request(prompt(n), request_id="sky")
                while manager.get_result(timeout=1) is None:
                    pass
    assert [len(each.prompt_ids) for each in run.requests] == [5, 9]
    assert all(each.finished and len(each.new_ids) == 3 for each in run.requests)


def test_an_engine_left_running_serves_its_requests(llama, capfd):
    with record_serving(llama) as run:
        manager = llama.init_continuous_batching(**configure(5))
        manager.add_request(prompt(7), request_id="sky")
        manager.start()
    assert [each.finished for each in run.requests] == [True] and len(run) == 5
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_gives_the_texts(llama):
    class Letters:
        def decode(self, ids, **_):
            return "".join(chr(ord("a") + i % 26) for i in ids)

    with record_serving(llama, Letters()) as run:
        texts = serve(llama, [[5, 6, 7]], n_new=2)
    (served,) = run.requests
    assert (served.prompt, served.text) == ("fgh", Letters().decode(texts["req_0"]))
    assert run.label(5) == "f"


def test_a_prompt_answered_twice_shares_its_full_pages_and_copies_the_last(llama, tmp_path):
    configs = configure(3, page_size=4)
    configs["generation_config"].num_return_sequences = 2
    with record_serving(llama) as run:
        llama.generate_batch([prompt(11), prompt(1, seed=1)], **configs)
    parent, child = (run[1].request(name) for name in ("req_0", "req_0__child#0"))
    assert (parent.phase, child.phase, child.held_before) == ("prefill", "prefill", 10)
    assert parent.pages[:2] == child.pages[:2] and parent.pages[2] != child.pages[2]
    (one,) = run[0].idle  # nothing of a prompt of one token is fed before it is forked
    assert (one.rows, one.held, len(one.pages), run[0].fill[one.pages[0]]) == (0, 0, 1, 0)
    loaded = ServingRun.load(run.save(tmp_path / "twice.npz"))
    assert loaded.requests == run.requests and len(run.requests) == 4


# -- the square of a pass --------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_attention_of_a_pass_is_each_requests_own(models, name):
    model, prompts = models[name], [prompt(11), prompt(18, seed=1)]
    with record_serving(model, keep="attention") as run:
        texts = serve(model, prompts, n_new=4, page_size=4, max_batch_tokens=16)
    squares = []
    for ids, tokens in zip(prompts, texts.values(), strict=True):
        with record(model) as own:
            model(torch.tensor([ids + tokens]), use_cache=False)
        squares.append({layer: own[0].attention[layer][0] for layer in range(3)})
    assert {step.rows for step in run} >= {16, 2}
    for step in run:
        for layer, weights in step.attention.items():
            rows, columns = step.list_rows(), step.list_columns(layer)
            visible = step.find_visible(layer)
            assert weights.shape == (6, len(rows), len(columns)) == (6, *visible.shape)
            assert weights[:, visible].all() and not weights[:, ~visible].any()
            for r, row in enumerate(rows):
                own = squares[["req_0", "req_1"].index(row.request)][layer][:, row.position]
                there = [j for j in range(len(columns)) if visible[r, j]]
                expected = own[:, [columns[j].position for j in there]].numpy()
                assert np.abs(weights[:, r, there] - expected).max() < 1e-5


def test_columns_say_where_a_key_lies_and_who_shares_it(shared):
    step = shared[2]
    columns = step.list_columns()
    assert len(columns) == sum(each.held for each in step.requests)
    for column in columns:
        owner = step.request(column.request)
        assert column.page == owner.pages[column.position // 8]
        assert column.cell == column.position % 8 < step.fill[column.page]
        assert column.requests == step.owners[column.page]
    cells = {(column.page, column.cell) for column in columns}
    assert len(columns) - len(cells) == 24  # the beginning that the two have in common


def test_layers_to_keep_are_chosen_and_counts_keep_none(llama):
    with record_serving(llama, keep=("attention",), layers=[1]) as run:
        serve(llama, [prompt(5)], n_new=2)
    assert [[*step.attention] for step in run] == [[1], [1]]
    with record_serving(llama) as run:
        serve(llama, [prompt(5)], n_new=2)
    assert [step.attention for step in run] == [None, None]


# -- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sizes", "n_new", "too_few"),
    [("llama", (30,), 4, 8), ("llama", (10, 18), 4, 5), ("gemma3", (30,), 4, 4)],
)
def test_too_few_pages_are_one_error_that_says_how_many(models, name, sizes, n_new, too_few, capfd):
    model, prompts = models[name], [prompt(n, seed=n) for n in sizes]
    with pytest.raises(RuntimeError, match=rf"Set num_blocks={too_few + 1} or more") as caught:
        with record_serving(model):
            serve(model, prompts, n_new=n_new, page_size=4, num_blocks=too_few)
    assert "too little for 1 request: 'req_" in str(caught.value)
    assert f"{max(sizes) + n_new - 1} tokens at its end" in str(caught.value)
    assert "Error" not in capfd.readouterr().err
    with record_serving(model):
        texts = serve(model, prompts, n_new=n_new, page_size=4, num_blocks=too_few + 1)
    assert [len(tokens) for tokens in texts.values()] == [n_new] * len(sizes)


def test_what_a_hook_raises_reaches_the_caller_as_one_error(llama, capfd):
    def fail(*_):
        raise ZeroDivisionError("a hook's own")

    with pytest.raises(RuntimeError, match="ended in its own thread with ZeroDivision.*a hook's"):
        with record_serving(llama) as run:
            hook = llama.model.layers[1].register_forward_pre_hook(fail)
            try:
                texts = serve(llama, [prompt(9)])
            finally:
                hook.remove()
            texts["req_0"][0]  # what the block makes of it says less
    assert len(run) == 0 and "Traceback" not in capfd.readouterr().err


def test_a_recording_that_grows_too_large_stops_and_says_so(llama):
    with pytest.raises(MemoryError, match=r"step \d+ would take this recording .* max_bytes"):
        with record_serving(llama, max_bytes=4000) as run:
            serve(llama, [prompt(9)] * 3)
    assert 0 < len(run) and run.bytes_kept <= 4000
    with pytest.raises(MemoryError, match="step 0"):
        with record_serving(llama, keep="attention", max_bytes=4000):
            serve(llama, [prompt(20)])


def test_an_error_in_the_block_comes_out_as_it_is(llama):
    with pytest.raises(KeyError, match="mine"):
        with record_serving(llama) as run:
            manager = llama.init_continuous_batching(**configure(60))
            manager.start()
            manager.add_request(prompt(9))
            while not len(run):
                time.sleep(0.01)
            raise KeyError("mine")
    assert len(run) < 60  # the engine stopped at once


@pytest.fixture
def interruptible():
    """Interrupts are heard, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_out_and_ends_the_engine(llama, interruptible):
    def interrupt(index, manager):
        if index == 3:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        with engine_truth.watch_engine(interrupt), record_serving(llama):
            serve(llama, [prompt(9)], n_new=12)


def test_an_eager_model_is_eager_again_even_if_the_engine_never_starts():
    model = small.llama()
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="page_size"):
        with record_serving(model):
            serve(model, [prompt(5)], page_size=2)
    assert model.config._attn_implementation == "eager"


def test_nothing_of_an_engine_is_left_in_memory(llama):
    caches = []

    def look(index, manager):
        caches.append(weakref.ref(manager.batch_processor.cache))

    with engine_truth.watch_engine(look), record_serving(llama) as run:
        serve(llama, [prompt(5)], n_new=2)
    gc.collect()
    assert len(run) == len(caches) == 2 and not any(cache() for cache in caches)
    with pytest.raises(MemoryError) as caught:
        with engine_truth.watch_engine(look), record_serving(llama, max_bytes=1500):
            serve(llama, [prompt(5)])
    gc.collect()
    assert caught.value and len(caches) > 2 and not any(cache() for cache in caches)


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (small.mistral, "all its layers have a window"),
        (small.qwen3_next, "no layer of type linear_attention"),
        (small.t5, "encoder-decoder"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_by_name(build, reason):
    model = build()
    with pytest.raises(ValueError, match=f"{type(model).__name__} cannot be recorded: .*{reason}"):
        with record_serving(model):
            pass


def test_a_forge_is_refused():
    with pytest.raises(TypeError, match="got Forge: use record"):
        with record_serving(kv.Forge.from_pretrained(small.llama(tie_word_embeddings=True))):
            pass


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(keep="keys"), ValueError, "keep takes"),
        (dict(keep=3), ValueError, "keep takes"),
        (dict(layers=[3]), ValueError, "layers 0 to 2"),
        (dict(max_bytes=-1), ValueError, "max_bytes"),
        (dict(tokenizer="words"), TypeError, "tokenizer"),
    ],
)
def test_arguments_that_do_not_exist_are_refused(llama, options, error, message):
    with pytest.raises(error, match=message):
        with record_serving(llama, **options):
            pass


def test_record_says_to_use_record_serving(llama):
    with pytest.raises(ValueError, match="Use record_serving instead"), record(llama):
        serve(llama, [prompt(5)])
    manager = llama.init_continuous_batching(**configure(2))  # set up before, so it can start
    with pytest.raises(ValueError, match="Use record_serving instead"), record(llama):
        manager.start()
        manager.add_request(prompt(5))
        while manager.is_running():
            time.sleep(0.01)
    manager.stop()


@pytest.mark.parametrize("kinds", [(record, record_serving), (record_serving, record)])
def test_one_recording_inside_the_other_is_refused(llama, kinds):
    outer, inner = kinds
    with outer(llama, keep=()):
        with pytest.raises(ValueError, match="is being recorded already"):
            with inner(llama, keep=()):
                pass


def test_an_engine_that_runs_already_is_refused(llama):
    with llama.continuous_batching_context_manager(**configure(2)):
        with pytest.raises(ValueError, match="start it inside"):
            with record_serving(llama):
                pass


def test_two_engines_at_a_time_are_refused(llama):
    with pytest.raises(ValueError, match="two engines at a time"), record_serving(llama) as run:
        with llama.continuous_batching_context_manager(**configure(2)) as manager:
            manager.add_request(prompt(5))
            manager.get_result(timeout=5)
            serve(llama, [prompt(5)])
    assert len(run) == 2


def test_a_version_without_these_fields_is_refused_by_name(llama):
    def change(index, manager):
        del manager.batch_processor.cache.pool.num_reserved_sectors

    expected = r"the engine of transformers 5.* is not the one.*num_reserved_sectors"
    with pytest.raises(ValueError, match=expected):
        with engine_truth.watch_engine(change), record_serving(llama):
            serve(llama, [prompt(5)])


def test_a_padded_engine_is_refused_by_name(llama, monkeypatch):
    def pad(index, manager):
        manager.batch_processor.model_runner.pad_inputs = True

    with pytest.raises(ValueError, match="pads its passes.*use_cuda_graph=False"):
        with engine_truth.watch_engine(pad), record_serving(llama):
            serve(llama, [prompt(5)])


# -- saved ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(llama, tmp_path_factory):
    prompts = [prompt(11), prompt(18, seed=1)]
    with record_serving(llama, keep="attention", layers=[2]) as run:
        serve(llama, prompts, n_new=3, page_size=4, max_batch_tokens=16)
    return run, run.save(tmp_path_factory.mktemp("saved") / "engine.npz")


def test_a_saved_run_is_the_same(saved):
    run, path = saved
    loaded = ServingRun.load(path)
    assert repr(loaded) == repr(run) and loaded.requests == run.requests
    for one, other in zip(run, loaded, strict=True):
        fields = [{**vars(each), "attention": None} for each in (one, other)]
        assert fields[0] == fields[1]
        assert one.attention.keys() == other.attention.keys()
        assert all(np.array_equal(one.attention[n], other.attention[n]) for n in one.attention)
    assert loaded.save(path.parent / "again.npz").read_bytes()[:2] == b"PK"
    assert loaded.label(run[0].requests[0].token_ids[0]) != "?"


DAMAGE = [
    dict(index=7),
    dict(engine=-1),
    dict(page_size=8),
    dict(n_pages=9),
    dict(requests=()),
    dict(owners={}),
    dict(fill={}),
    dict(free=()),
    dict(cached=(2,)),
    dict(reserved=(5,)),
    dict(lent=(99,)),
    dict(waiting=("req_0",)),
    dict(preempted=("sky",)),
    dict(finished=(3,)),
    dict(windows={0: 0}),
    dict(attention={2: np.zeros((6, 1, 1), np.float32)}),
    dict(name="sky"),
    dict(rows=3),
    dict(held_before=9),
    dict(held=9),
    dict(phase="idle"),
    dict(phase="later"),
    dict(pages=(2,)),
    dict(token_ids=(1,)),
    dict(positions=(1,)),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: next(iter(damage)))
def test_a_damaged_step_is_refused(saved, tmp_path, damage):
    run, _ = saved
    step = run[1]
    if {*damage} & {*vars(step)}:
        step = replace(step, **damage)
    else:
        step = replace(step, requests=(replace(step.requests[0], **damage), *step.requests[1:]))
    steps = [run[0], step, *run[2:]]
    path = serving_storage.write_serving(tmp_path / "bad.npz", steps, run.requests, {}, 2**20)
    with pytest.raises(ValueError, match="is not a recording that ServingRun.save wrote"):
        ServingRun.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        dict(name="sky"),
        dict(engine=1),
        dict(prompt_ids=(1, 2)),
        dict(new_ids=("a",)),
        dict(prompt=3),
        dict(finished="yes"),
        dict(seen=(0, 99)),
        dict(fed=()),
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_a_damaged_request_is_refused(saved, tmp_path, damage):
    run, _ = saved
    listed = [replace(run.requests[0], **damage), *run.requests[1:]]
    path = serving_storage.write_serving(tmp_path / "bad.npz", run, listed, {}, 2**20)
    with pytest.raises(ValueError, match="is not a recording that ServingRun.save wrote"):
        ServingRun.load(path)


def test_other_files_are_refused(saved, tmp_path, llama):
    _, path = saved
    with pytest.raises(FileNotFoundError):
        ServingRun.load(tmp_path / "none.npz")
    half = tmp_path / "half.npz"
    half.write_bytes(path.read_bytes()[:500])
    with record(llama) as run:
        llama(small.prompt(4))
    for other in (half, run.save(tmp_path / "run.npz")):
        with pytest.raises(ValueError, match="is not a recording that ServingRun.save wrote"):
            ServingRun.load(other)
    with pytest.raises(ValueError, match="is not a recording"):
        kv.Run.load(path)
