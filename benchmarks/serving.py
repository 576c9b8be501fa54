"""What recording an engine costs, whether memory stays flat, and a sweep of random schedules.

Recording counts is compared with the engine's own time, as the median of paired ratios. The sweep
holds every recorded step against what the engine itself knows; the tests have a part of it.
"""

import gc
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

import kvviz as kv

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import engine_truth  # noqa: E402
import small  # noqa: E402

PROMPTS = (
    "The first law of motion states",
    "Once upon a time, in a small village by the sea, there lived an old woman who kept",
    "The first law of motion states that an object at rest",
)


def serve(model, prompts, n_new: int, **sizes):
    """Serve the prompts with the library's own call."""
    pages = ContinuousBatchingConfig(**{"page_size": 8, "num_blocks": 32, **sizes})
    ends = GenerationConfig(max_new_tokens=n_new, do_sample=False, eos_token_id=-1)
    return model.generate_batch(prompts, generation_config=ends, continuous_batching_config=pages)


def compare_cost(rounds: int, n_new: int) -> bool:
    """Processor time of the default model's engine, plain and recorded, in turn."""
    model, tokenizer = kv.load_model()
    prompts = [tokenizer(text).input_ids for text in PROMPTS]

    def recorded():
        with kv.record_serving(model, tokenizer):
            serve(model, prompts, n_new, max_batch_tokens=16)

    def plain():
        serve(model, prompts, n_new, max_batch_tokens=16)

    taken = {"the engine": [], "recorded, counts only": []}
    for warm in (True, *[False] * rounds):
        for name, call in zip(taken, (plain, recorded), strict=True):
            start = time.process_time()  # the engine's thread counts too; other programs don't
            call()
            taken[name] += [] if warm else [time.process_time() - start]
    times = kv.timing.Comparison(taken)
    cost = times.ratio("recorded, counts only")
    print(times, f"counts only: {cost:.3f}, at most 1.05", sep="\n")
    return cost <= 1.05


def measure_hook(n_new: int) -> bool:
    """Processor time that recording takes in one pass, and that the pass takes."""
    model, tokenizer = kv.load_model()
    prompts = [tokenizer(text).input_ids for text in PROMPTS]
    taken = {"hooks": 0.0, "passes": 0.0}

    def timed(function, name):
        def call(*given, **named):
            start = time.thread_time()
            try:
                return function(*given, **named)
            finally:
                taken[name] += time.thread_time() - start

        return call

    with kv.record_serving(model, tokenizer) as run:
        for hooks in (model._forward_pre_hooks, model._forward_hooks):
            for key, hook in hooks.items():
                hooks[key] = timed(hook, "hooks")
        model.forward = timed(model.forward, "passes")
        try:
            serve(model, prompts, n_new, max_batch_tokens=16)
        finally:
            del model.forward
    hook, whole = (1000 * taken[name] / len(run) for name in ("hooks", "passes"))
    print(f"a pass takes {whole:.1f} ms of processor time, recording it {hook:.2f} ms")
    return hook <= 0.05 * whole


def measure_memory(starts: int) -> bool:
    """Start the engine again and again; memory after the third start, and at the end."""
    model, process = small.llama(), psutil.Process()
    prompts, taken = [small.prompt(20, seed=n)[0].tolist() for n in range(3)], []
    for _ in range(starts):
        with kv.record_serving(model, keep="attention"):
            serve(model, prompts, 6)
        taken.append(process.memory_info().rss / 2**20)
    grown = max(taken[2:]) - taken[min(2, starts - 1)] if starts > 2 else 0.0
    threads = process.num_threads()
    print(f"{starts} starts: {grown:.1f} MiB more than after the third, {threads} threads")
    return grown <= 20


def sweep(schedules: int) -> bool:
    """Serve random schedules, and count what happened in them."""
    models = [small.llama(), small.gemma3()]
    seen, wrong = Counter(), []
    gc.freeze()  # each engine collects garbage when it ends, and needn't go through all of torch
    for seed in range(schedules):
        try:
            run, has_room = engine_truth.serve_randomly(models[seed % 2], seed)
        except AssertionError as error:
            wrong.append(seed)
            print(f"schedule {seed}: {error!r}")
            continue
        seen["steps"] += len(run)
        seen["without room"] += not has_room
        for name in ("shared", "idle", "cached", "lent", "preempted"):
            seen[f"with {name}"] += any(getattr(step, name) for step in run)
    counts = ", ".join(f"{n} {name}" for name, n in seen.items())
    print(f"{schedules} schedules: {counts}; {len(wrong)} differ from the engine")
    return not wrong


def main(rounds=9, n_new=16, starts=50, schedules=200) -> bool:
    torch.manual_seed(0)
    return all(
        [
            compare_cost(rounds, n_new),
            measure_hook(n_new),
            measure_memory(starts),
            sweep(schedules),
        ]
    )
