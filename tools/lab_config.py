"""Settings for the course's JupyterLab: `jupyter lab --config=tools/lab_config.py`.

A kernel tells JupyterLab which Python it is, and JupyterLab notes that in the notebook. The
notebooks here name no version, so each would be marked as changed as soon as it's opened. This
server names its own version when it hands one out; the file stays as it is until it's saved.
"""

from ipykernel.ipkernel import IPythonKernel
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager


class NotebookManager(AsyncLargeFileManager):
    """Hands out notebooks as a Python kernel would leave them."""

    async def get(self, path, content=True, type=None, format=None, **options):  # noqa: A002
        model = await super().get(path, content, type, format, **options)
        if model["type"] == "notebook" and model["content"] is not None:
            metadata = model["content"]["metadata"]
            if metadata.get("language_info") == {"name": "python"}:
                metadata["language_info"] = dict(IPythonKernel.language_info)
        return model


c.ServerApp.contents_manager_class = NotebookManager  # noqa: F821
