"""What starts the kernels of a JupyterLab in tests: they're forked, as those of nbval."""

from multiprocessing import forkserver, get_context

from jupyter_server.services.kernels.kernelmanager import ServerKernelManager

from tests.warm_kernel import IMPORTED, Forking

get_context("forkserver").set_forkserver_preload(IMPORTED)
forkserver.ensure_running()  # it imports while JupyterLab starts


class ForkingServerManager(Forking, ServerKernelManager):
    """Starts the kernels of JupyterLab."""
