"""What one decode step costs on an idle machine and beside one busy process.

Each way for torch's threads to wait has a process of its own, since OpenMP reads its settings only
once. The processes take turns, idle and beside the busy one, so that every round compares them all.
"""

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from statistics import median

import psutil

from kvviz.threads import SETTINGS
from kvviz.timing import Comparison

UNSET, CHOSEN = "not set", "as kvviz sets it"
OTHERS = ("0", "100", "10000")  # turns of GNU's loop, to compare with
BESIDE, IDLE = 2.0, 1.1  # at most this many times: beside over idle; idle over idle, not set
STEPS = """
import statistics, sys, time
import {first}
import torch
import kvviz as kv
model, tokenizer = kv.load_model()
out = model(**tokenizer("The first law of motion states", return_tensors="pt"), use_cache=True)
for n_steps in sys.stdin:
    taken = []
    for _ in range(int(n_steps)):
        start = time.perf_counter()
        out = model(out.logits[:, -1:].argmax(-1), cache=out.cache, use_cache=True)
        taken.append(time.perf_counter() - start)
    print(statistics.median(taken), flush=True)
"""


@contextmanager
def stepping(first: str, settings: dict):
    """A function that gives the median seconds of n decode steps in a fresh process."""
    ours = {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", *SETTINGS}
    env = {name: value for name, value in os.environ.items() if name not in ours} | settings
    command = [sys.executable, "-c", STEPS.format(first=first)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def measure(n_steps: int) -> float:
        child.stdin.write(f"{n_steps}\n")
        child.stdin.flush()
        return float(child.stdout.readline())

    with subprocess.Popen(command, env=env, **pipes) as child:
        yield measure
        child.stdin.close()


@contextmanager
def busy():
    """One process that keeps a core busy, if it gets one."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield psutil.Process(child.pid)
    finally:
        child.kill()
        child.wait()


def measure(rounds: int, n_steps: int, others) -> Comparison:
    """Seconds of a step for each way of waiting, idle and beside a busy process."""
    ways = {UNSET: ("torch", {}), CHOSEN: ("kvviz", {})}
    ways |= {f"GOMP_SPINCOUNT={n}": ("torch", {"GOMP_SPINCOUNT": n}) for n in others}
    seconds = {f"{way}, {state}": [] for state in ("idle", "beside") for way in ways}
    with ExitStack() as stack:
        other = stack.enter_context(busy())
        other.suspend()
        children = {way: stack.enter_context(stepping(*how)) for way, how in ways.items()}
        for child in children.values():
            child(n_steps)  # loads everything
        for number in range(rounds):
            for state in ("idle", "beside"):
                if state == "beside":
                    other.resume()
                for way in list(ways)[:: -1 if number % 2 else 1]:
                    seconds[f"{way}, {state}"].append(children[way](n_steps))
            other.suspend()
    return Comparison(seconds)


def judge(steps: Comparison, what: str, name: str, base: str, limit: float) -> bool:
    """Print a ratio next to its limit; only one that is clearly over it is a failure."""
    (low, high), says = steps.spread(name, base), steps.tells(name, base, factor=limit)
    ratio = f"{steps.ratio(name, base):.2f} ({low:.2f} to {high:.2f})"
    word = {"faster": "within", "slower": "over"}.get(says, says)
    print(f"{what}: {ratio} times, at most {limit}: {word}")
    return says != "slower"


def main(rounds=11, n_steps=5, others=OTHERS) -> bool:
    load = psutil.cpu_percent(interval=1) / 100 * psutil.cpu_count()
    if load > 0.2:
        print(f"this machine isn't idle: other work keeps {load:.1f} of its cores busy")
    steps = measure(rounds, n_steps, others)
    for name, taken in steps.seconds.items():
        print(f"{name:<29}{1e3 * median(taken):6.0f} ms")
    beside, idle, unset = f"{CHOSEN}, beside", f"{CHOSEN}, idle", f"{UNSET}, idle"
    within = judge(steps, "beside a busy process over idle", beside, idle, BESIDE)
    return judge(steps, "idle over idle, not set", idle, unset, IDLE) and within
