"""torch's waiting threads sleep, however a kernel is started."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from kvviz.threads import SETTINGS
from tools.notebooks import ROOT, notebooks, read

NAMES = ("OMP_WAIT_POLICY", *SETTINGS)
NOTHING = dict.fromkeys(NAMES)


def run_fresh(code, **given):
    """What a fresh process has of these variables after `code`."""
    env = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    shown = f"{code}\nimport os\nprint({{name: os.environ.get(name) for name in {NAMES}}})"
    done = subprocess.run(
        [sys.executable, "-c", shown], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    return eval(done.stdout)


def test_importing_kvviz_sets_them_before_torch_is_loaded():
    code = "import sys, kvviz\nassert 'torch' not in sys.modules"
    assert run_fresh(code) == NOTHING | SETTINGS


@pytest.mark.parametrize("name", SETTINGS)
def test_a_value_of_your_own_is_kept(name):
    assert run_fresh("import kvviz", **{name: "7"}) == NOTHING | SETTINGS | {name: "7"}


def test_the_standards_own_setting_is_left_to_decide():
    policy = {"OMP_WAIT_POLICY": "active"}
    assert run_fresh("import kvviz", **policy) == NOTHING | policy


def test_nothing_is_set_when_torch_was_loaded_first():
    assert run_fresh("import torch, kvviz") == NOTHING


def test_torch_reads_what_was_set():
    """Its OpenMP says which value it took: GNU's count, or LLVM's time in milliseconds."""
    code = "import sys, kvviz, torch\ntorch.ones(512, 512) @ torch.ones(512, 512)"
    env = {name: value for name, value in os.environ.items() if name not in NAMES}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=env | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert "GOMP_SPINCOUNT = '1000'" in said or "KMP_BLOCKTIME='1ms'" in said, said


@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_make_sets_them_for_every_kernel_it_starts(given, tmp_path):
    """A recipe's own environment, as a kernel started by it would inherit it."""
    (tmp_path / "rules").write_text("print-environment:\n\t@env\n")
    env = {"PATH": os.environ["PATH"]} | given
    command = ["make", "--silent", "-f", "Makefile", "-f", tmp_path / "rules", "print-environment"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    made = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    expected = {} if "OMP_WAIT_POLICY" in given else SETTINGS
    assert {name: made[name] for name in NAMES if name in made} == expected | given


def test_conda_sets_them_in_its_environment():
    assert yaml.safe_load((ROOT / "environment.yml").read_text())["variables"] == SETTINGS


def test_the_tests_and_their_kernels_run_with_them():
    assert "OMP_WAIT_POLICY" in os.environ or {*SETTINGS} <= {*os.environ}


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_imports_kvviz_before_torch(path):
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    imports = re.findall(r"^(?:import|from) (kvviz|torch|transformers)\b", "\n".join(code), re.M)
    assert imports[0] == "kvviz"
