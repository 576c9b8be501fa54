"""Settings for all tests, including those of the notebooks' cells."""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from queue import Empty

import pytest
from nbval import kernel, plugin

from kvviz.threads import let_waiting_threads_sleep
from tests.warm_kernel import ForkingManager

PATIENCE = 600  # seconds to wait for a busy machine; only something that hangs takes as long
# The slowest files come first, so that no worker starts one when the others are nearly done. Those
# with a browser come before the notebooks, some of which time what they do.
LONGEST = ["browser", "check_cache", "kept_widgets", "site", "zoo", "models"]
LONGEST = [*(f"tests/test_{name}.py" for name in LONGEST), "notebooks/"]
LONGEST += [f"tests/test_{name}.py" for name in ("stepper", "benchmarks", "nbval", "check_loop")]

os.environ["KVVIZ_PROGRESS"] = "0"  # otherwise a bar's text would be compared
let_waiting_threads_sleep()  # in the notebooks' kernels too, which load torch first
if workers := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
    # More threads than cores make torch many times slower.
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // int(workers)))
else:  # workers use the first process's folders
    _jupyter = tempfile.mkdtemp(prefix="kvviz-jupyter-")
    atexit.register(shutil.rmtree, _jupyter, ignore_errors=True)
    os.environ |= {
        "JUPYTER_CONFIG_DIR": f"{_jupyter}/config",
        "JUPYTER_DATA_DIR": f"{_jupyter}/data",
        "JUPYTERLAB_SETTINGS_DIR": f"{_jupyter}/settings",
        "JUPYTERLAB_WORKSPACES_DIR": f"{_jupyter}/workspaces",
        "IPYTHONDIR": f"{_jupyter}/ipython",
    }


class WatchedKernel(kernel.RunningKernel):
    """A kernel whose death is noticed within seconds, but slowness isn't taken for death."""

    def __init__(self, kernel_name, cwd=None, startup_timeout=PATIENCE):
        self.km, self.kc = kernel.start_new_kernel(
            startup_timeout=max(PATIENCE, int(startup_timeout)),
            kernel_name=kernel_name,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
        )
        self._ensure_iopub_up()

    def _ensure_iopub_up(self):
        """Ask until an answer comes through the output channel; the first one may be lost."""
        deadline = time.monotonic() + PATIENCE
        while True:
            asked = self.kc.kernel_info()
            self.await_reply(asked, timeout=PATIENCE)
            try:
                return self.await_idle(asked, timeout=1)
            except Empty:
                if time.monotonic() > deadline:
                    raise RuntimeError("the kernel sends no output") from None

    def get_message(self, stream, timeout=None):
        if stream == "iopub" and timeout == 5:  # nbval's own, while waiting for an output
            timeout = PATIENCE
        return super().get_message(stream, timeout=timeout)

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
kernel.KernelManager = ForkingManager


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Put the slowest files first; the tests of a file stay together and in order."""

    def rank(item):
        return next((k for k, name in enumerate(LONGEST) if item.nodeid.startswith(name)), 99)

    items.sort(key=rank)


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
    """What docstring examples start from: a small random model, a prompt and three runs."""
    import torch

    import kvviz as kv
    from tests import small

    model = small.llama()
    ids = small.prompt(6)
    with kv.record(model) as uncached:
        model.generate(ids, max_new_tokens=5, do_sample=False, use_cache=False)
    with kv.record(model) as run:
        model.generate(ids, max_new_tokens=5, do_sample=False)
    names = {"kv": kv, "torch": torch, "model": model, "ids": ids, "run": run}
    return names | {"uncached": uncached, "served": _serve(model, ids[0].tolist())}


def _serve(model, ids):
    """A recording of an engine that serves two prompts with the same beginning."""
    from transformers import ContinuousBatchingConfig

    import kvviz as kv

    pages = ContinuousBatchingConfig(page_size=4, num_blocks=16, max_batch_tokens=8)
    with kv.record_serving(model) as served:
        model.generate_batch([ids, [*ids, 7]], continuous_batching_config=pages, max_new_tokens=3)
    return served


@pytest.fixture(autouse=True)
def _examples(request):
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("doctest_namespace").update(request.getfixturevalue("examples"))
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))
