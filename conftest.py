"""What holds for every test, a notebook's cells included."""

import atexit
import os
import shutil
import tempfile
from queue import Empty

import pytest
from nbval import plugin
from nbval.kernel import RunningKernel

os.environ["KVVIZ_PROGRESS"] = "0"  # a bar's text would be compared
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    # More threads than cores make torch many times slower.
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // int(workers)))
else:  # workers share the first process's folders
    _jupyter = tempfile.mkdtemp(prefix="kvviz-jupyter-")
    atexit.register(shutil.rmtree, _jupyter, ignore_errors=True)
    os.environ |= {
        "JUPYTER_CONFIG_DIR": f"{_jupyter}/config",
        "JUPYTER_DATA_DIR": f"{_jupyter}/data",
        "JUPYTERLAB_SETTINGS_DIR": f"{_jupyter}/settings",
        "JUPYTERLAB_WORKSPACES_DIR": f"{_jupyter}/workspaces",
        "IPYTHONDIR": f"{_jupyter}/ipython",
    }


class WatchedKernel(RunningKernel):
    """A kernel whose death is noticed within seconds, not when the cell's time is up."""

    def await_reply(self, msg_id, timeout=None):
        waited, patience = 0, 2
        while True:
            try:
                return super().await_reply(msg_id, timeout=patience)
            except Empty:
                waited += patience
                if not self.is_alive():
                    raise RuntimeError("the kernel died") from None
                if timeout is not None and waited >= timeout:
                    raise


plugin.RunningKernel = WatchedKernel


def _refuse_skip(report):
    nothing_may_be_skipped = os.environ.get("KVVIZ_REQUIRE_BROWSER") == "1"
    if report.skipped and nothing_may_be_skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and here nothing may be: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _refuse_skip((yield))


@pytest.fixture(scope="session")
def examples():
    """What the examples in docstrings start from: a small random model, a prompt, two runs."""
    import torch

    import kvviz as kv
    from tests import small

    model = small.llama()
    ids = small.prompt(6)
    with kv.record(model) as uncached:
        model.generate(ids, max_new_tokens=5, do_sample=False, use_cache=False)
    with kv.record(model) as run:
        model.generate(ids, max_new_tokens=5, do_sample=False)
    return {"kv": kv, "torch": torch, "model": model, "ids": ids, "run": run, "uncached": uncached}


@pytest.fixture(autouse=True)
def _examples(request):
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("doctest_namespace").update(request.getfixturevalue("examples"))
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
