import importlib
import pkgutil
import subprocess
import sys

import pytest

import kvviz
from kvviz import setup_check as room
from kvviz.setup_check import check_setup


def test_this_machine_has_everything(default_model):
    report = check_setup()
    assert report.ready and repr(report).endswith("Everything is here.")
    assert "✓ the packages it needs" in repr(report)


def test_a_missing_or_old_package_is_named_with_its_fix(monkeypatch, default_model):
    real = room.metadata.version

    def version(name):
        if name == "anywidget":
            raise room.metadata.PackageNotFoundError(name)
        return "2.1.0" if name == "torch" else real(name)

    monkeypatch.setattr(room.metadata, "version", version)
    text = repr(check_setup())
    assert "✗ anywidget" in text and "not installed" in text
    assert "✗ torch" in text and "version 2.1.0 is installed" in text
    assert text.count("To fix it: run `make lab`") == 2
    assert text.endswith("then run this again.")


def test_a_missing_model_and_a_full_disk_are_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: room.shutil._ntuple_diskusage(9, 8, 1))
    text = repr(check_setup())
    assert "✗ the course's model" in text and "KVVIZ_HOME" in text
    assert "✗ 2 GiB of disk space for the model" in text and "only 0.0 GiB are free" in text
    assert not (tmp_path / "none").exists()


def _run_in_a_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_kvviz_loads_neither_torch_nor_transformers():
    code = "import sys, kvviz; print({'torch', 'transformers', 'matplotlib'} & set(sys.modules))"
    assert _run_in_a_fresh_process(code).stdout.strip() == "set()"


def test_a_package_that_is_not_installed_is_named_with_its_fix():
    code = "import sys; sys.modules['torch'] = None; import kvviz; kvviz.record"
    error = _run_in_a_fresh_process(code).stderr.strip().splitlines()[-1]
    assert error.startswith("ModuleNotFoundError: kvviz needs torch") and "make lab" in error


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match="no 'recrod'; it has .*record"):
        _ = kvviz.recrod


def test_every_public_name_is_what_it_says():
    for name in kvviz.__all__:
        value = getattr(kvviz, name)
        assert value.__name__.removeprefix("kvviz.") == name


def test_no_module_replaces_a_public_name_when_it_is_imported():
    """An imported module becomes an attribute of the package and replaces what had that name."""
    modules = {module.name for module in pkgutil.iter_modules(kvviz.__path__)}
    assert len(modules) > 10
    shared = modules & set(kvviz.__all__)
    assert shared and all(
        importlib.import_module(f"kvviz.{n}") is getattr(kvviz, n) for n in shared
    )
