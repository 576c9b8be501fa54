"""A fresh kernel for each notebook, without importing torch once more for each.

The kernels are forked from a process that has imported the libraries and done nothing else. They
share no state: what a notebook imports or changes stays in its own process.
"""

import functools
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from types import ModuleType

from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.provisioning import LocalProvisioner
from nbclient import NotebookClient

IMPORTED = ["ipykernel.kernelapp", "torch", "transformers.models.llama.modeling_llama"]
IMPORTED += ["transformers.models.auto.modeling_auto", "matplotlib.figure", "ipywidgets"]


class ForkedKernel:
    """What `LocalProvisioner` needs of a process, of one that was forked and not started."""

    stdin = stdout = stderr = None

    def __init__(self, arguments, cwd, env):
        context = get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        given = (arguments, fresh_path(), cwd, env)
        self.process = context.Process(target=run_kernel, args=given)
        with main_hidden():
            self.process.start()
        self.pid = self.process.pid

    def poll(self):
        """The exit code; None while it runs."""
        return self.process.exitcode

    def wait(self):
        """The exit code, once it has ended."""
        self.process.join()
        return self.process.exitcode

    def send_signal(self, signum):
        """Send a signal to the process itself."""
        os.kill(self.pid, signum)


class ForkedProvisioner(LocalProvisioner):
    """Forks a kernel instead of starting one."""

    async def launch_kernel(self, cmd, **kwargs):
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        self.cwd = kwargs.get("cwd") or os.getcwd()
        self.process = ForkedKernel(arguments, str(self.cwd), kwargs["env"])
        self.pid = self.pgid = self.process.pid
        return self.connection_info


class Forking:
    """Starts a kernel the usual way where a process with the system's threads can't be forked."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        if sys.platform == "linux":
            given = {"kernel_id": self.kernel_name, "kernel_spec": self.kernel_spec}
            self.provisioner = ForkedProvisioner(**given, parent=self)


class ForkingManager(Forking, KernelManager):
    """Starts the kernels of nbval."""


class ForkingAsyncManager(Forking, AsyncKernelManager):
    """Starts the kernels of nbclient."""


ForkingClient = functools.partial(NotebookClient, kernel_manager_class=ForkingAsyncManager)


@contextmanager
def main_hidden():
    """Otherwise a forked process imports what this one was started with, such as pytest."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@functools.cache
def fresh_path():
    """Where a new Python looks for modules: pytest adds folders of its own."""
    command = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.path[1:]))"]
    return json.loads(subprocess.check_output(command))


def run_kernel(arguments, path, cwd, env):
    """Be a kernel, from now on and as long as the process that asked for it lives."""
    os.setsid()  # so that a signal reaches what the notebook starts, too
    threading.Thread(target=end_with, args=(parent_process(),), daemon=True).start()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = path
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=["--IPKernelApp.parent_handle=1", *arguments])  # 1: watch nothing


def end_with(parent):
    """End this process once its parent has ended."""
    parent.join()
    os._exit(1)
