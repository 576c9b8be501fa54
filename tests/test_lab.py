"""`make lab` serves the first notebook."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from tools.notebooks import ROOT, notebooks

TOKEN = "learner"
PATIENCE = 600  # seconds to wait for a busy machine; only something that hangs takes as long


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, path):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{path}", headers={"Authorization": f"token {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.read().decode()


def stop(made):
    started = psutil.Process(made.pid).children(recursive=True)
    os.killpg(made.pid, signal.SIGTERM)
    made.wait(timeout=PATIENCE)
    _, alive = psutil.wait_procs(started, timeout=PATIENCE)
    for process in alive:
        process.kill()
    assert not alive, "JupyterLab did not stop when told to"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The port of a JupyterLab started by `make lab`, and the file that names the page it opens."""
    folder = tmp_path_factory.mktemp("lab")
    log, opened, browser = folder / "log", folder / "opened", folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n')
    browser.chmod(0o755)
    port = free_port()
    outer_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    environment = {k: v for k, v in os.environ.items() if k not in outer_make}
    options = f"--port={port} --port-retries=0 --IdentityProvider.token={TOKEN}"
    with log.open("w") as out:
        made = subprocess.Popen(
            ["make", "lab", f"LAB_ARGS={options}"],
            cwd=ROOT,
            env=environment | {"BROWSER": f"{browser} %s"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                ask(port, "api/status")
                break
            except OSError:  # not there yet, or too busy to answer
                assert made.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.5)
        yield port, opened
    finally:
        if made.poll() is None:
            stop(made)


def test_make_lab_serves_the_first_notebook(lab):
    port, _ = lab
    first = notebooks()[0]
    served = json.loads(ask(port, f"api/contents/notebooks/{first.name}"))
    assert served["type"] == "notebook"
    assert served["content"]["cells"][0]["source"].startswith("#")


def test_make_lab_opens_the_first_notebook(lab):
    port, opened = lab
    deadline = time.monotonic() + PATIENCE
    while not (opened.exists() and opened.read_text().endswith("\n")):
        assert time.monotonic() < deadline, "no page was opened"
        time.sleep(0.1)
    redirect = Path(opened.read_text().strip().removeprefix("file://")).read_text()
    page = f"http://localhost:{port}/lab/tree/notebooks/{notebooks()[0].name}"
    assert f'url={page}?token={TOKEN}"' in redirect


def test_make_lab_trusts_the_notebooks(lab):
    port, _ = lab
    served = json.loads(ask(port, f"api/contents/notebooks/{notebooks()[0].name}"))
    code = [cell for cell in served["content"]["cells"] if cell["cell_type"] == "code"]
    assert all(cell["metadata"]["trusted"] for cell in code)


def test_make_lab_has_no_news_pop_up(lab):
    port, _ = lab
    name = "@jupyterlab/apputils-extension:notification"
    settings = json.loads(ask(port, f"lab/api/settings/{name}"))["settings"]
    assert settings["fetchNews"] == "false"
