"""Serve random schedules, and copy what the engine itself knows at every pass.

The engine's own bookkeeping is read here, where `record_serving` reads a pass's arguments: the
requests that it put into the pass, its ledger of shared pages, its count of free ones, and what it
put back or finished.
"""

import contextlib
import copy
import random
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import small
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching import continuous_api, offloading_manager, requests

from kvviz.recording.serving import record_serving

FULL = "full_attention"


def configure(n_new, **changes):
    """The two configs of an engine; nothing ends a request early."""
    generation = GenerationConfig(max_new_tokens=n_new, do_sample=False, eos_token_id=-1)
    sizes = dict(page_size=8, num_blocks=32, max_batch_tokens=32)
    return dict(
        generation_config=generation,
        continuous_batching_config=ContinuousBatchingConfig(**{**sizes, **changes}),
    )


@dataclass
class Truth:
    """What the engine knew, pass by pass, and who was put back or finished after each."""

    passes: list[dict] = field(default_factory=list)
    put_back: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)


@contextlib.contextmanager
def watch_engine(arrive=lambda index, manager: None):
    """Copy the engine's state before each pass; `arrive` may add requests there."""
    truth = Truth()
    step = continuous_api.ContinuousBatchingManager._generation_step
    complete = requests.RequestState.update_and_check_completion
    offload = offloading_manager.OffloadingManager.offload_requests

    def watched_step(manager):
        truth.passes.append(_copy_state(manager.batch_processor, truth))
        arrive(len(truth.passes) - 1, manager)
        step(manager)

    def watched_complete(state, *given):
        is_done = complete(state, *given)
        truth.finished += [state.request_id] if is_done else []
        return is_done

    def watched_offload(manager):
        before = {*manager.scheduler.waiting_requests}
        is_done = offload(manager)
        truth.put_back += {*manager.scheduler.waiting_requests} - before
        return is_done

    managers = continuous_api.ContinuousBatchingManager, offloading_manager.OffloadingManager
    with (
        mock.patch.object(managers[0], "_generation_step", watched_step),
        mock.patch.object(managers[1], "offload_requests", watched_offload),
        mock.patch.object(requests.RequestState, "update_and_check_completion", watched_complete),
    ):
        yield truth


def _copy_state(processor, truth):
    cache, scheduler, ios = processor.cache, processor.scheduler, processor.inputs_and_outputs
    allocator, pool = cache.cache_allocators[FULL], cache.pool
    given = ios.get_model_kwargs()
    n_free = pool.count_free_blocks(allocator.index)
    n_free += pool.num_free_sectors * allocator.blocks_per_sector
    fed = [(each.state.request_id, each.query_length) for each in ios.requests_in_batch]
    seen = {
        "fed": fed,
        "new": [each.has_new_token for each in ios.requests_in_batch],
        "held": {n: state.position_offset for n, state in scheduler.active_requests.items()},
        "tables": copy.deepcopy(allocator.block_table),
        "users": dict(allocator.ledger.shared_ref_counts),
        "cached": [*allocator.ledger.cached_blocks],
        "n_free": n_free,
        "n_pages": allocator.num_blocks,
        "page_size": allocator.tokens_per_page,
        "waiting": [*scheduler.waiting_requests],
        "cells": _count_cells(given, fed, allocator),
        "ids": given["input_ids"][0].tolist(),
        "put_back": truth.put_back,
        "finished": truth.finished,
    }
    truth.put_back, truth.finished = [], []
    return seen


def _count_cells(given, fed, allocator):
    """How many cells of each page the pass reads for each request: all that are filled by then."""
    counts, start = {}, 0
    index = given["read_index"][allocator.index]
    index = (given["write_index"][allocator.index] if not len(index) else index).tolist()
    ends = given["cu_seq_lens_k"][FULL].tolist()[1:]
    for (name, _), end in zip(fed, ends, strict=True):
        counts[name] = Counter(cell // allocator.block_physical_stride for cell in index[start:end])
        start = end
    return counts


def check_steps(run, truth):
    """Every field of every recorded step against what the engine knew."""
    assert len(run) == len(truth.passes)
    had_pages = {}
    for step, known in zip(run, truth.passes, strict=True):
        # The engine may list a request without a row: it waits to be forked.
        fed = [(name, rows) for name, rows in known["fed"] if rows]
        assert [(each.name, each.rows) for each in step.requests] == fed
        new = [is_new for is_new, (_, rows) in zip(known["new"], known["fed"], strict=True) if rows]
        assert [each.phase != "chunk" for each in step.requests] == new
        assert {each.name: each.held for each in step.holding} == {
            name: known["held"][name] for name in known["tables"]
        }
        assert all(each.held - each.held_before == each.rows for each in step.holding)
        assert {each.name: [*each.pages] for each in step.holding} == known["tables"]
        assert {page: len(names) for page, names in step.shared.items()} == known["users"]
        assert [*step.cached] == known["cached"]
        assert (len(step.free), step.n_pages) == (known["n_free"], known["n_pages"])
        assert step.page_size == known["page_size"]
        assert [*step.waiting] == known["waiting"]
        # One that is given a shared beginning and put back before the pass never had pages in one.
        put_back = [name for name in known["put_back"] if name in had_pages]
        assert sorted(step.preempted) == sorted(put_back)
        had_pages = known["tables"]
        assert sorted(step.finished) == sorted(known["finished"])
        assert [row.token_id for row in step.list_rows()] == known["ids"]
        for each in step.requests:
            cells = known["cells"][each.name]
            # It may have been given a page that this pass writes nothing to yet.
            fill = {page: step.fill[page] for page in each.pages if step.fill[page]}
            assert fill == dict(cells)
        groups = [*step.owners, *step.free, *step.cached, *step.lent]
        assert len({*groups}) == len(groups) == step.n_pages
        assert not {*groups} & {*step.reserved}


@torch.no_grad()
def check_text(model, prompt, tokens):
    """Each token is the one that the model prefers, alone and without a cache.

    Of two that differ by rounding only, either may come out.
    """
    logits = model(torch.tensor([prompt + tokens]), use_cache=False).logits[0, len(prompt) - 1 : -1]
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    assert bool((logits.amax(-1) - chosen < 1e-4).all()), (tokens, logits.argmax(-1).tolist())


def serve_randomly(model, seed):
    """One random schedule, recorded and compared; returns (run, whether there was room for all)."""
    chance = random.Random(seed)
    size, n_new = chance.choice([4, 8, 16]), chance.randint(1, 12)
    beginning = small.prompt(chance.choice([0, 9, 24]), seed=chance.randint(0, 1))[0].tolist()
    prompts = {}
    for number in range(chance.randint(2, 6)):
        length = chance.randint(1, 70)
        own = small.prompt(length, seed=chance.randint(0, 2))[0].tolist()
        prompts[f"r{number}"] = (beginning + own)[:length] if chance.random() < 0.6 else own
    largest = max(len(prompt) for prompt in prompts.values()) + n_new - 1
    needed = -(-largest // size)
    n_pages = chance.choice([needed - 1, needed, needed + 1, needed + 3, 2 * needed, 6 * needed])
    n_batch = chance.choice([8, 16, 32, 64])
    later = {name: chance.randint(0, 12) for name in prompts if chance.random() < 0.5}
    later.pop("r0", None)  # somebody has to be there first
    sequences = 2 if chance.random() < 0.3 else 1
    configs = configure(
        n_new,
        page_size=size,
        num_blocks=max(1, n_pages),
        max_batch_tokens=n_batch,
        scheduler_type=chance.choice(["fifo", "fifo", "prefill_first"]),
        allow_block_sharing=chance.random() < 0.8,
    )
    configs["generation_config"].num_return_sequences = sequences

    arrived = []

    def arrive(index, manager):
        for name, at in later.items():
            if at == index:
                manager.add_request(prompts[name], request_id=name)
                arrived.append(name)

    run = outputs = None
    with watch_engine(arrive) as truth:
        try:
            with record_serving(model) as run:
                outputs = _serve(model, prompts, later, configs, sequences, arrived)
        except RuntimeError as error:
            assert "num_blocks=" in str(error)
            check_steps(run, truth)
            return run, False
    check_steps(run, truth)
    assert len(outputs) == sequences * len(arrived)
    for name, tokens in outputs.items():
        prompt = prompts[name.partition("__")[0]]
        assert len(tokens) == n_new
        check_text(model, prompt, tokens)
        served = run.find_request(name)
        assert (served.finished, [*served.new_ids]) == (True, tokens)
        assert [*served.prompt_ids] == prompt
    return run, True


def _serve(model, prompts, later, configs, sequences, arrived):
    """Serve the prompts; those in `later` come on the way, if anything is served then."""
    manager = model.init_continuous_batching(**configs)
    for name, prompt in prompts.items():
        if name not in later:
            manager.add_request(prompt, request_id=name)
            arrived.append(name)
    manager.start()
    outputs = {}
    while True:
        result = manager.get_result(timeout=0.1)
        if result is not None:
            outputs[result.request_id] = result.generated_tokens
        elif not manager.is_running() or len(outputs) >= sequences * len(arrived):
            break
    manager.stop(block=True)
    return outputs
