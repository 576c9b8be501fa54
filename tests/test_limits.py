"""Long prompts stay affordable: the cost of drawing one step and of counting one token.

Each test runs in a separate process, which also shows what recording loads.
"""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

HERE = Path(__file__).parent
DRAWN = """
import time, torch, kvviz as kv
from small import llama, prompt
sizes = dict(hidden_size=22, num_attention_heads=2, num_key_value_heads=1)
model = llama(n_positions=2000, num_hidden_layers=2, **sizes)
with kv.record(model, layers=[1]) as run, torch.no_grad():
    model(prompt(2000))
def drawn():
    start = time.process_time()
    kv.draw_step(run, step=0, layer=1, head=0).png()
    return time.process_time() - start
input("recorded\\n")
print(min(drawn() for _ in range(3)))
"""
COUNTED = """
import sys, torch, kvviz as kv
from small import cached_loop, llama, prompt
model = llama(n_positions=2000, num_hidden_layers=1)
with kv.record(model, keep=()):
    cached_loop(model, prompt(1000), 3)
input("warm\\n")
with kv.record(model, keep=()) as run:
    cached_loop(model, prompt(1000), 1001)
assert (len(run), run.positions) == (1001, 2000)
print(run.bytes_kept)
input()
print(repr(run).splitlines()[-1], run.save(sys.argv[1]).name, len(kv.Run.load(sys.argv[1])))
print(*sys.modules)
"""


class Child:
    """A separate process that stops at each `input`; its memory is watched from outside."""

    def __init__(self, code, *given):
        path = f"import os, sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\n"
        command = [sys.executable, "-c", path + code, *given]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        self.memory = psutil.Process(self.process.pid).memory_info

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def read(self):
        return self.process.stdout.readline().strip()

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def peak(self):
        """The most memory it holds until it ends."""
        most = 0
        while self.process.poll() is None:
            try:
                most = max(most, self.memory().rss)
            except psutil.NoSuchProcess:
                break
            time.sleep(0.002)
        return most


def test_one_step_of_two_thousand_tokens_is_drawn_in_two_seconds_and_300_megabytes():
    with Child(DRAWN) as child:
        assert child.read() == "recorded"
        before = child.memory().rss
        child.go_on()
        growth = child.peak() - before
        seconds = float(child.read())
        print(f"{seconds:.2f} s, {growth / 1e6:.0f} MB")
        assert child.process.returncode == 0
    assert seconds < 2
    assert 0 < growth < 300e6


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A prompt of a thousand tokens and a thousand new ones, counted in a separate process."""
    with Child(COUNTED, str(tmp_path_factory.mktemp("counted") / "run.npz")) as child:
        assert child.read() == "warm"
        before = child.memory().rss
        child.go_on()
        bytes_kept = int(child.read())
        growth = child.memory().rss - before
        child.go_on()
        said, loaded = child.read(), child.read().split()
    return SimpleNamespace(bytes_kept=bytes_kept, growth=growth, said=said, loaded=loaded)


def test_counts_of_two_thousand_tokens_grow_by_bounded_bytes_and_can_be_printed_and_saved(counted):
    kept, growth = counted.bytes_kept / 2000, counted.growth / 2000
    print(f"{kept:.0f} bytes a token counted, {growth:.0f} bytes a token grown")
    assert kept < 12_000  # three numbers a column, in every step
    assert growth < 24_000
    assert counted.said == (
        "1,001 steps, 2,000 positions computed, 2,001,000 cells of the square run.npz 1001"
    )


def test_recording_loads_nothing_that_draws_judges_or_shows(counted):
    assert "kvviz.recording.recorder" in counted.loaded
    assert not {"matplotlib", "ipywidgets", "anywidget"} & set(counted.loaded)
    rooms = {name.split(".")[1] for name in counted.loaded if name.startswith("kvviz.")}
    assert not {"drawing", "widgets", "checking", "exercises"} & rooms
