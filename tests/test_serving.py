"""Run notebook 07's cells: device and server with a small model, and the published models."""

import contextlib
import io
from math import isclose, isnan

import pytest
import small
import torch

import kvviz as kv
from kvviz import count
from kvviz.recording.recorder import record
from tools.notebooks import ROOT, sources

NEW = 9
CELLS = ("own-run", "device", "serve")


@pytest.fixture(scope="module")
def lesson():
    """What the notebook defines, with a small model and that model's cache size."""
    cells = sources(ROOT / "notebooks" / "07-weigh-it.ipynb")
    model = small.llama()
    names = {"torch": torch, "model": model}
    names["bytes_of"] = lambda tokens: count.cache_bytes(model.config, tokens)
    for name in CELLS:
        definitions = cells[name].split("\nwith kv.record")[0]  # without the run that is drawn
        exec(compile(definitions, name, "exec"), names)
    return names


@pytest.fixture
def serve(lesson):
    def serve(room, prompts, **options):
        device, printed = lesson["Device"](lesson["bytes_of"](room)), io.StringIO()
        with contextlib.redirect_stdout(printed):
            texts, held, failed = lesson["serve"](device, prompts, NEW, **options)
        assert not device.held  # everything was freed
        return texts, held, failed, printed.getvalue().splitlines()

    return serve


def prompts(*sizes):
    return {f"{size} tokens": small.prompt(size, seed=size) for size in sizes}


def alone(lesson, ids):
    return list(lesson["written"](ids, NEW))[-1]


def held_by(lesson, start, n):
    return [lesson["bytes_of"](start + step) for step in range(n)]


@pytest.mark.parametrize("sizes", [(5, 7), (7, 5), (5, 5), (6, 3, 11)])
def test_with_room_enough_each_writes_what_it_writes_alone(lesson, serve, sizes):
    asked = prompts(*sizes)
    texts, held, failed, printed = serve(sum(sizes) + 9 * len(sizes), asked)
    assert failed == {} and printed == []
    for (name, ids), size in zip(asked.items(), dict.fromkeys(sizes), strict=True):
        assert torch.equal(texts[name], alone(lesson, ids))
        assert held[name] == [*held_by(lesson, size, NEW), 0]


@pytest.mark.parametrize("sizes", [(5, 7), (7, 5)])
def test_a_failing_request_does_not_change_the_other(lesson, serve, sizes):
    asked = prompts(*sizes)
    texts, held, failed, printed = serve(20, asked)
    ((loser, at),) = failed.items()
    winner = next(name for name in asked if name != loser)
    assert torch.equal(texts[winner], alone(lesson, asked[winner]))
    assert texts[loser].shape[1] == asked[loser].shape[1] + at
    assert torch.equal(texts[loser], alone(lesson, asked[loser])[:, : texts[loser].shape[1]])
    assert held[loser][at:] == [0] * len(held[loser][at:])
    fitted = asked[loser].shape[1] + at - 1
    assert printed == [f"{loser}: {fitted} tokens fit, but {fitted + 1} don't"]


def test_the_device_never_holds_more_than_it_has(lesson, serve):
    for room in range(8, 40, 10):
        for preempt in (False, True):
            _, held, _, _ = serve(room, prompts(4, 6, 5), preempt=preempt)
            assert max(map(sum, zip(*held.values(), strict=True))) <= lesson["bytes_of"](room)


@pytest.mark.parametrize("sizes", [(5, 7), (7, 5), (4, 6, 5)])
def test_a_preempted_run_writes_the_same_and_recomputes_rows(lesson, serve, sizes):
    asked = prompts(*sizes)
    with record(lesson["model"], keep=()) as run:
        texts, _, failed, _ = serve(20, asked, preempt=True)
    assert failed
    for name, ids in asked.items():
        assert torch.equal(texts[name], alone(lesson, ids))
    recomputed = sum(asked[name].shape[1] + at - 1 for name, at in failed.items())
    assert sum(run.rows) == sum(sizes) + (NEW - 1) * len(sizes) + recomputed


def test_what_does_not_fit_alone_fails_for_good(serve):
    texts, _, failed, printed = serve(6, prompts(7, 2), preempt=True)
    assert "7 tokens" in failed and texts["7 tokens"].shape[1] == 7
    assert set(printed) >= {"7 tokens: 0 tokens fit, but 7 don't"}
    assert len(printed) <= 4  # tried again alone, and not after that


# -- the published models --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published():
    """What the cell of the published models defines."""
    names = {"kv": kv}
    source = sources(ROOT / "notebooks" / "07-weigh-it.ipynb")["published"]
    exec(compile(source, "published", "exec"), names)
    return names


def test_no_curve_goes_past_its_models_last_position(published):
    last = [most for most, *_ in published["published"].values()]
    assert min(last) < published["up_to"][-1]  # a curve that has to end
    for most, curve in zip(last, published["slopes"].values(), strict=True):
        for tokens, gib in zip(published["up_to"], curve, strict=True):
            assert isnan(gib) == (tokens > most)


@pytest.mark.parametrize(
    ("model", "numbers"),  # that 4,096 tokens leave: keys and values, layers, heads, width, tokens
    [
        ("Llama 2 7B", 2 * 32 * 32 * 128 * 4096),
        ("Qwen3 8B", 2 * 36 * 8 * 128 * 4096),
        ("gpt-oss-20b", 2 * 12 * 8 * 64 * (4096 + 127)),
        ("Kimi K2.6", 61 * (512 + 64) * 4096),
    ],
)
def test_each_published_model_holds_what_its_sizes_say(published, model, numbers):
    (curve,) = (gib for name, gib in published["slopes"].items() if name.startswith(model))
    assert isclose(curve[list(published["up_to"]).index(4096)], 2 * numbers / 2**30)
