"""All ways to set up the course agree with each other, and the README is correct."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import packages_distributions

import pytest
import yaml
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.notebooks import ROOT
from tools.pins import closure, requirements

MAKEFILE = (ROOT / "Makefile").read_text()
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
)
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
CONDA_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}


def conda_packages():
    """Name -> version of each package that conda itself installs."""
    lines = [line for line in ENVIRONMENT["dependencies"] if isinstance(line, str)]
    return {name: rest for name, _, rest in (line.partition("=") for line in lines)}


def pip_lines():
    (lines,) = [part["pip"] for part in ENVIRONMENT["dependencies"] if isinstance(part, dict)]
    return lines


def targets():
    return set(re.findall(r"^([a-z]+):(?!=)", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("wanted", requirements(("test",)), ids=str)
def test_what_we_depend_on_is_pinned_to_a_version_we_allow(wanted):
    assert wanted.specifier.contains(PINNED[canonicalize_name(wanted.name)])


def test_all_that_kvviz_imports_is_declared():
    trees = [ast.walk(ast.parse(path.read_text())) for path in (ROOT / "kvviz").rglob("*.py")]
    nodes = [node for tree in trees for node in tree]
    imported = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    imported |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    tops = {name.split(".")[0] for name in imported} - sys.stdlib_module_names - {"kvviz"}
    assert "torch" in tops
    declared = {canonicalize_name(wanted.name) for wanted in requirements()}
    sources = packages_distributions()
    missing = [top for top in tops if not declared & {*map(canonicalize_name, sources[top])}]
    assert missing == []


def test_all_that_our_dependencies_pull_in_is_pinned_to_what_is_tested():
    assert closure(requirements(("test",))) == PINNED


def test_a_pin_is_a_bare_release():
    for name, version in PINNED.items():
        assert name == canonicalize_name(name)
        assert version == Version(version).public, "a build's label or a path is no release"


def test_conda_installs_the_same_versions():
    packages = conda_packages()
    assert fnmatch(packages.pop("pytorch"), f"{PINNED['torch']}=cpu[*]")
    python = packages.pop("python")
    assert PROJECT["requires-python"] == f">={python}"
    assert packages.pop("pip") == ""
    for name, prefix in packages.items():
        version = PINNED[CONDA_NAMES.get(name, name)]
        assert f"{version}.".startswith(f"{prefix}."), f"{name} is pinned to {version}"


def test_conda_names_every_package_of_the_course_and_of_its_tests():
    """The conda environment has the tested versions, and `pytest` runs in it."""
    by_conda = {CONDA_NAMES.get(name, name) for name in conda_packages()}
    rest = [wanted.name for wanted in requirements(("test",)) if wanted.name not in by_conda]
    assert {"transformers", "jupyterlab", "ipywidgets", "anywidget", "pytest", "nbval"} <= {*rest}
    assert pip_lines() == ["-c constraints.txt", *rest, "-e .[test]"]
    assert ENVIRONMENT["name"] == "kvviz"


@pytest.mark.parametrize(
    "name",
    ["pyproject.toml", "constraints.txt", "environment.yml", "Makefile", ".ci/run"],
)
def test_a_setup_file_names_no_host_and_no_path_of_one_machine(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"https?://|file:|index-url|find-links|/home/|/root/|/tmp/", text)


def test_ci_runs_the_one_command_and_lets_nothing_be_skipped():
    script = (ROOT / ".ci/run").read_text()
    assert script.splitlines()[-1] == "make test"
    assert "set -eu" in script
    assert "export KVVIZ_REQUIRE_BROWSER=1" in script
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["test"]["steps"][-1] == {"run": "bash .ci/run"}


def test_the_makefile_has_the_targets_and_what_they_start():
    assert {"lab", "test", "lint", "refresh", "bench", "pictures", "clean"} <= targets()
    started = set(re.findall(r"-m ((?:tools|benchmarks)[\w.]*)", MAKEFILE))
    for module in started:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


@pytest.fixture
def made_with(tmp_path):
    """`made_with({"python3.12": (3, 12)})`: what make says and runs with only these Pythons."""

    def run(pythons, *arguments):
        path = tmp_path / "bin"
        path.mkdir()
        for name, version in pythons.items():
            as_old = f"import sys; sys.version_info = {version}; $2"
            answer = f'"{sys.executable}" -c "{as_old}"' if version else "exit 127"  # a dead shim
            (path / name).write_text(
                f'#!/bin/sh\nif [ "$1" = -c ]; then {answer}; else echo "{name} $*"; fi\n'
            )
            (path / name).chmod(0o755)
        venv = tmp_path / "venv"
        return subprocess.run(
            [shutil.which("make"), "--silent", f"{venv}/bin/python", f"VENV={venv}", *arguments],
            cwd=ROOT,
            env={"PATH": str(path)},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    ("pythons", "taken"),
    [
        ({"python3": (3, 11)}, "python3"),
        ({"python3": (3, 9), "python3.11": (3, 11)}, "python3.11"),
        ({"python3": (3, 11), "python3.12": (3, 12)}, "python3.12"),
        ({"python3.11": (3, 11), "python3.12": (3, 12), "python3.13": (3, 13)}, "python3.13"),
        ({"python3.13": None, "python3.12": (3, 12)}, "python3.12"),
    ],
)
def test_make_takes_the_newest_python_that_is_supported(made_with, pythons, taken):
    made = made_with(pythons)
    assert re.search(r"^(\S+) -m venv", made.stdout, re.MULTILINE)[1] == taken, made


def test_make_takes_the_python_that_is_named(made_with):
    pythons = {"python3.13": (3, 13), "python3.11": (3, 11)}
    assert made_with(pythons, "PYTHON=python3.11").stdout.startswith("python3.11 -m venv")


@pytest.mark.parametrize("pythons", [{}, {"python3": (3, 10)}, {"python3.13": None}])
def test_make_says_so_when_there_is_no_python(made_with, pythons):
    made = made_with(pythons)
    assert made.returncode != 0
    assert "No Python 3.11 or later" in made.stdout
    assert "among: python3.13 python3.12 python3.11 python3. Install one" in made.stdout


def test_make_says_so_when_the_python_that_is_named_is_not_there(made_with):
    made = made_with({"python3": (3, 11)}, "PYTHON=python3.0")
    assert made.returncode != 0
    assert "was found among: python3.0." in made.stdout


def test_nothing_but_our_folder_is_packaged_with_its_data():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = sorted(p.parent for p in (ROOT / "kvviz").rglob("__init__.py"))
    assert setuptools["packages"] == [".".join(p.relative_to(ROOT).parts) for p in rooms]
    found = [p for p in (ROOT / "kvviz").rglob("*") if p.is_file() and p.parent.name[0] != "_"]
    data = [p for p in found if p.suffix != ".py"]
    assert len(data) >= 5
    for path in data:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        assert any(fnmatch(path.name, g) for g in setuptools["package-data"][package]), path.name


def test_the_readme_is_short_and_begins_with_a_picture():
    lines = README.splitlines()
    assert len(lines) < 100
    picture = "\n".join(lines[2:6])
    still, moving, alt = re.search(
        r'^<picture>\n<source media="\(prefers-reduced-motion: reduce\)" srcset="(.+?)">\n'
        r'<img src="(.+?)" width="\d+" alt="(.+?)">\n</picture>$',
        picture,
    ).groups()
    assert still.endswith(".png") and (ROOT / still).exists()
    assert moving.endswith(".gif") and (ROOT / moving).stat().st_size < 400_000
    assert len(alt) > 40


def test_the_readmes_own_lines_run(default_model):
    code = re.search(r"```python\n(.+?)```", README, re.DOTALL)[1]
    own = [line for line in code.splitlines() if not line.startswith(("import", " ")) and line]
    assert len(own) == 3, "any prompt, any model, in three lines"
    names = {}
    exec(code, names)
    assert len(names["run"]) == 8 and names["run"][0].square(0, 0).tokens[0] == "The"


def test_each_command_in_the_readme_exists():
    commands = re.findall(r"^(?:\w+=\S+ )*(make|conda|python|pip) ?(.*)$", README, re.MULTILINE)
    made = {word for tool, rest in commands if tool == "make" for word in rest.split()[:1]}
    assert {"lab", "test"} <= made <= targets()
    for tool, rest in commands:
        if tool != "make":
            assert all((ROOT / f).exists() for f in re.findall(r"[\w-]+\.(?:yml|txt)\b", rest))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_each_link_resolves(name):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / name).read_text())
    local = [link for link in links if not link.startswith("https://")]
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_readme_lists_every_notebook_in_order():
    course = sorted(p.name for p in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert course
    assert re.findall(r"\]\(notebooks/([^)]+\.ipynb)\)", README) == course


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
def test_the_code_is_linted_and_formatted(command):
    ruff = subprocess.run(
        [sys.executable, "-m", "ruff", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert ruff.returncode == 0, ruff.stdout[-3000:]
