"""A JupyterLab with separate folders, and a headless Chromium, for tests and benchmarks."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import psutil
from jupyter_client import BlockingKernelClient
from nbformat import v4
from playwright.sync_api import expect, sync_playwright

QUIET = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync""".split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 600  # seconds to wait for a busy machine; only something that hangs takes as long
ROOT = Path(__file__).parents[1]
KERNELS = "tests.warm_server.ForkingServerManager"
NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}


def chromium() -> str | None:
    """The browser's path, or None if it isn't installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def jupyterlab(folder: Path, *options: str):
    """Serve `folder` and yield a `Lab`. Nothing outside `folder` is read or written.

    `options` go to the command.
    """
    own = folder / ".jupyter"
    names = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = {f"JUPYTER_{name}": str(own / name.lower()) for name in names}
    environment |= {
        "JUPYTERLAB_SETTINGS_DIR": str(own / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(own / "workspaces"),
        "IPYTHONDIR": str(own / "ipython"),
        "KVVIZ_PROGRESS": "0",
        "OMP_NUM_THREADS": "1",  # the browser needs a core as well
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    settings = own / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(NO_NEWS))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    token = secrets.token_hex(8)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [*options, "--expose-app-in-browser"]  # so that a test can change the theme
    command += [
        f"--MappingKernelManager.kernel_manager_class={KERNELS}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.ip=127.0.0.1",
    ]
    command += [f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"]
    log = (own / "log").open("w")
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    lab = Lab(f"http://127.0.0.1:{port}", token, own / "runtime_dir")
    try:
        deadline = time.monotonic() + PATIENCE
        while not lab.answers():
            assert server.poll() is None, (own / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, (own / "log").read_text()[-3000:]
            time.sleep(0.3)
        yield lab
    finally:
        log.close()
        _stop(server)


def _stop(server: subprocess.Popen) -> None:
    if server.poll() is not None:
        return
    started = psutil.Process(server.pid).children(recursive=True)
    os.killpg(server.pid, signal.SIGTERM)
    server.wait(timeout=PATIENCE)
    for process in psutil.wait_procs(started, timeout=60)[1]:
        process.kill()


class Lab:
    """A running JupyterLab."""

    def __init__(self, address: str, token: str, runtime: Path):
        self.address, self.token, self.runtime = address, token, runtime

    def answers(self) -> bool:
        try:
            self._ask("api/status")
        except OSError:  # not there yet, or too busy to answer
            return False
        return True

    def page(self, name: str) -> str:
        return f"{self.address}/lab/tree/{name}?token={self.token}&reset"

    def kernel(self, name: str) -> BlockingKernelClient:
        """A client of the kernel that runs notebook `name`."""
        found, deadline = [], time.monotonic() + PATIENCE
        while not found:
            assert time.monotonic() < deadline, f"{name} has no kernel after {PATIENCE} s"
            time.sleep(0.2)
            sessions = json.loads(self._ask("api/sessions"))
            found = [s["kernel"]["id"] for s in sessions if s["path"] == name and s["kernel"]]
        client = BlockingKernelClient(connection_file=str(self.runtime / f"kernel-{found[0]}.json"))
        client.load_connection_file()
        client.start_channels(hb=False)  # a kernel that misses a beat may just be busy
        client.wait_for_ready(timeout=PATIENCE)
        return client

    def _ask(self, path: str) -> str:
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.address}/{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode()


def ask(client: BlockingKernelClient, expression: str, *, first: str = ""):
    """The value of a Python expression in a kernel, sent as JSON, after running `first`."""
    wanted = {"it": f"__import__('json').dumps({expression})"}
    reply = client.execute(
        first, store_history=False, user_expressions=wanted, reply=True, timeout=PATIENCE
    )
    assert reply["content"]["status"] == "ok", reply["content"]
    answer = reply["content"]["user_expressions"]["it"]
    assert answer["status"] == "ok", answer
    return json.loads(eval(answer["data"]["text/plain"]))  # a string's repr


SETUP = """import torch
from transformers import LlamaConfig, LlamaForCausalLM
import kvviz as kv

torch.manual_seed(0)
sizes = dict(hidden_size=66, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
rest = dict(intermediate_size=58, num_hidden_layers=3, vocab_size=101, initializer_range=0.12)
model = LlamaForCausalLM(LlamaConfig(**sizes, **rest)).eval()
ids = torch.arange(5, 11)[None]


@torch.no_grad()
def recorded(n, use_cache):
    with kv.record(model) as run:
        fed, cache = ids, None
        seen = ids
        for _ in range(n):
            out = model(fed if use_cache else seen, cache=cache, use_cache=use_cache)
            fed, cache = out.logits[:, -1:].argmax(-1), out.cache
            seen = torch.cat([seen, fed], dim=-1)
    return run


cached, plain = recorded(12, True), recorded(12, False)
"""


def notebook(cells: list[str]) -> str:
    """The text of a notebook file with these code cells."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    made = v4.new_notebook(metadata={"kernelspec": kernel})
    made.cells = [v4.new_code_cell(source, id=f"cell-{k}") for k, source in enumerate(cells)]
    return nbformat.writes(made)


@contextmanager
def browser():
    """A headless Chromium that makes no requests of its own."""
    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as play:
        chrome = play.chromium.launch(
            executable_path=chromium(), args=QUIET, timeout=1000 * PATIENCE
        )
        try:
            yield chrome
        finally:
            chrome.close()


def run_all(page, lab: Lab, name: str) -> BlockingKernelClient:
    """Open a notebook, run all cells from the menu, and wait until the kernel is idle.

    Returns a client of the notebook's kernel.
    """
    page.set_default_timeout(1000 * PATIENCE)
    idle = page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.goto(lab.page(name))
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    idle.wait_for()
    client = lab.kernel(name)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    cells = page.locator(".jp-CodeCell .jp-InputPrompt")
    ran = "(all) => all.every((each) => /\\[\\d+\\]/.test(each.textContent))"
    deadline = time.monotonic() + PATIENCE
    while not cells.evaluate_all(ran):
        assert time.monotonic() < deadline, f"{name} still runs after {PATIENCE} s"
        page.wait_for_timeout(200)
    idle.wait_for()
    return client
