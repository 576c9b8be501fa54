"""A widget that is a still picture wherever its kernel isn't: in a saved notebook, for example."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import anywidget
import traitlets

HERE = Path(__file__).parent


class Placed(anywidget.AnyWidget):
    """A widget whose saved output is what a cell shows where no widget runs.

    JupyterLab prefers a widget's view to anything else in a cell's output, and shows an error if
    it opens a notebook whose widgets' kernel is gone. So `place.js` takes the view out of the
    output, and puts the widget into the still picture's place for as long as it has a kernel.
    """

    _place = traitlets.Unicode().tag(sync=True)  # finds the widget's own output: its model's id

    def __init__(self, **state):
        place = uuid4().hex
        super().__init__(model_id=place, _place=place, **state)


def read_module(*names: str) -> str:
    """JavaScript files as one module, `place.js` first; the last file sets `widget`."""
    files = [(HERE / name).read_text(encoding="utf-8") for name in ("place.js", *names)]
    return "\n".join([*files, "export default widget;\n"])
