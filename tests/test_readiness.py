import subprocess
import sys

import pytest

from kvviz import setup_check as room
from kvviz.setup_check import check_setup


def test_this_machine_has_everything(default_model):
    report = check_setup()
    assert report.ready and repr(report).endswith("Everything is here.")
    assert "✓ the packages it needs" in repr(report)


def test_a_missing_or_old_package_is_named_with_its_cure(monkeypatch, default_model):
    real = room.metadata.version

    def version(name):
        if name == "anywidget":
            raise room.metadata.PackageNotFoundError(name)
        return "2.1.0" if name == "torch" else real(name)

    monkeypatch.setattr(room.metadata, "version", version)
    text = repr(check_setup())
    assert "✗ anywidget" in text and "not installed" in text
    assert "✗ torch" in text and "version 2.1.0 is installed" in text
    assert text.count("To mend it: run `make lab`") == 2
    assert text.endswith("then run again.")


def test_a_missing_model_and_a_full_disk_are_said(monkeypatch, tmp_path):
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path / "none"))
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: room.shutil._ntuple_diskusage(9, 8, 1))
    text = repr(check_setup())
    assert "✗ the course's model" in text and "KVVIZ_HOME" in text
    assert "✗ 2 GiB of disk for it" in text
    assert not (tmp_path / "none").exists()


def _in_a_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_importing_kvviz_loads_neither_torch_nor_transformers():
    code = "import sys, kvviz; print({'torch', 'transformers', 'matplotlib'} & set(sys.modules))"
    assert _in_a_fresh_process(code).stdout.strip() == "set()"


def test_a_package_that_is_not_installed_is_named_with_its_cure():
    code = "import sys; sys.modules['torch'] = None; import kvviz; kvviz.record"
    error = _in_a_fresh_process(code).stderr.strip().splitlines()[-1]
    assert error.startswith("ModuleNotFoundError: kvviz needs torch") and "make lab" in error


def test_an_unknown_name_says_which_there_are():
    import kvviz

    with pytest.raises(AttributeError, match="no 'recrod'; it has .*record"):
        _ = kvviz.recrod


@pytest.mark.parametrize("first", ["check", "record", "check_setup", "exercises", "draw_step"])
def test_every_name_is_what_it_says_in_whatever_order(first):
    code = (
        f"import kvviz as kv; kv.{first}\n"
        "assert all(callable(getattr(kv, n)) for n in ('check', 'record', 'check_setup', 'draw_step'))"
    )
    assert _in_a_fresh_process(code).stderr == ""
