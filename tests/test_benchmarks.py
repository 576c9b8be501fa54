"""Every benchmark runs, here at its smallest size and on a small model."""

import subprocess
import sys
from importlib import import_module

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import kvviz as kv
from benchmarks.__main__ import find
from tests.warm_kernel import ForkingClient
from tools.notebooks import ROOT

SMALLEST = {
    "busy_machine": {"rounds": 1, "n_steps": 1, "others": ()},
    "first_picture": {"rounds": 1},
    "forge": {"rounds": 1, "n_new": 2},
    "guesses": {"rounds": 1, "n_new": 3, "ks": (4,), "n_prompts": 1},
    "pictures": {"n_new": 3},
    "recording": {"rounds": 1, "n_new": 2},
    "serving": {"rounds": 1, "n_new": 2, "starts": 2, "schedules": 1},
    "stepper": {"n_new": 2, "n_long": 2, "n_heads": 1, "clicks": False},  # clicks: test_browser
    "time_it": {},
}


@pytest.fixture
def small_model(monkeypatch, default_model):
    """A replacement for the course's model, with enough layers for the benchmarks."""
    torch.manual_seed(0)
    tokenizer = default_model[1]
    sizes = dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=3)
    rest = dict(intermediate_size=20, num_hidden_layers=14, tie_word_embeddings=True)
    config = LlamaConfig(**sizes, **rest, vocab_size=len(tokenizer))
    model = LlamaForCausalLM(config).eval()
    monkeypatch.setattr(kv, "load_model", lambda: (model, tokenizer))
    monkeypatch.setattr("benchmarks.first_picture.NotebookClient", ForkingClient)


@pytest.mark.parametrize("name", find())
def test_each_bench_runs(name, small_model, capsys):
    bench = import_module(f"benchmarks.{name}")
    assert bench.main(**SMALLEST[name]) in (True, False)
    assert any(character.isdigit() for character in capsys.readouterr().out)


def test_an_unknown_benchmark_is_named_together_with_the_known_ones():
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"no benchmark nonsense; there are {', '.join(find())}" in done.stderr
