"""The wheel holds everything that kvviz needs, even if it's installed outside the repository."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import version

import pytest

import kvviz as kv
from tools.notebooks import ROOT

# The new environment's Python runs this in an empty folder.
USE = """
import json
import torch
from transformers import LlamaConfig, LlamaForCausalLM
import kvviz as kv

homes = {name: getattr(kv, name).__module__ for name in kv.__all__ if name in kv._HOME}
rooms = [getattr(kv, name).__name__ for name in kv.__all__ if name not in homes]
sizes = dict(hidden_size=24, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=2)
model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=20, vocab_size=31)).eval()
with kv.record(model) as run:
    model.generate(torch.arange(3, 8)[None], max_new_tokens=3, do_sample=False)
kv.draw_step(run, step=1).save("step.png")
kv.stepper(run).save("walk.html")
print(json.dumps([kv.__file__, kv.__version__, homes, rooms]))
"""


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy, so that the build leaves nothing behind in the repository."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    no_caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "kvviz", source / "kvviz", ignore=no_caches)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run([*pip, "--quiet", "--wheel-dir", str(out), str(source)])
    (built,) = out.glob("kvviz-*.whl")
    return built


@pytest.fixture(scope="module")
def used(wheel, tmp_path_factory):
    """The folder where the installed wheel was used, and what it printed."""
    folder = tmp_path_factory.mktemp("elsewhere")
    home = folder / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    paths = sysconfig.get_paths("venv", {"base": str(home), "platbase": str(home)})
    python = f"{paths['scripts']}/python"
    # kvviz's dependencies come from where they're already installed. kvviz itself doesn't, because
    # the hook of an editable install isn't read from a folder that a .pth file names.
    with open(f"{paths['purelib']}/others.pth", "w") as others:
        others.write("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    run([*pip, "--quiet", "--ignore-installed", str(wheel)], env=environment)
    printed = run([python, "-I", "-c", USE], cwd=folder, env=environment)
    return folder, json.loads(printed.splitlines()[-1])


def test_every_public_name_comes_from_the_wheel(used):
    folder, (file, its_version, homes, rooms) = used
    assert file.startswith(str(folder / "venv"))
    assert its_version == version("kvviz")
    assert {*homes} | {room.removeprefix("kvviz.") for room in rooms} == {*kv.__all__}
    assert all(home.startswith("kvviz.") for home in homes.values())


def test_a_picture_and_a_page_are_written_by_the_wheel(used):
    folder, _ = used
    assert (folder / "step.png").read_bytes().startswith(b"\x89PNG")
    assert "kvviz-stepper" in (folder / "walk.html").read_text()
