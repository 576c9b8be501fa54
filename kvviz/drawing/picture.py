"""`Picture`: a finished figure, and the sentence that describes it."""

from __future__ import annotations

import base64
import html
import io
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from kvviz import files
from kvviz.arguments import check_number, check_text, describe
from kvviz.drawing import style

SHARPEST = 8  # stored pixels for each one displayed
# JupyterLab shows an output's first line where the output is folded: it mustn't be the alt text,
# which can be the answer to a question.
FOLDED = "<!-- a picture: click to open it -->\n"


class Picture:
    """A figure with the sentence that describes it; a notebook shows it on a cell's last line.

    >>> kv.draw_step(run)
    step 0, layer 0, head 0: 6 rows attend to 6 columns; 6 keys and 6 values written; ...

    Raises:
        TypeError: `figure` isn't a figure of matplotlib.
        ValueError: `sentence` isn't text.
    """

    def __init__(self, figure: Figure, sentence: str):
        if not isinstance(figure, Figure):
            raise TypeError(f"figure: expected one of matplotlib, but got {describe(figure)}")
        check_text("sentence", sentence)
        # Half of a surrogate pair can be in a title, and in no file.
        self.figure = figure
        self.sentence = sentence.encode("utf-8", "backslashreplace").decode()
        self._png: dict[float, bytes] = {}

    @property
    def width(self) -> int:
        """Width in pixels as displayed; the PNG holds `style.SHARPNESS` pixels for each."""
        return round(self.figure.get_figwidth() * style.PIXELS)

    @property
    def height(self) -> int:
        """Height in pixels as displayed."""
        return round(self.figure.get_figheight() * style.PIXELS)

    def png(self, sharpness: float = style.SHARPNESS) -> bytes:
        """The picture as PNG bytes with a palette, the same every time.

        Args:
            sharpness: stored pixels for each pixel displayed, up to 8; 1 makes the smallest file.

        Raises:
            ValueError: `sharpness` isn't a number above 0 and up to 8.

        >>> kv.draw_step(run).png()[:4]
        b'\\x89PNG'
        """
        sharpness = check_number("sharpness", sharpness, above=0)
        smallest = min(self.width, self.height) * sharpness
        if sharpness > SHARPEST or smallest < 1:
            expected = f"expected a number above 0 and up to {SHARPEST}"
            raise ValueError(f"sharpness: {expected}, but got {sharpness}")
        if sharpness not in self._png:
            with style.scope():
                self.figure.set_dpi(style.PIXELS * sharpness)
                canvas = FigureCanvasAgg(self.figure)
                canvas.draw()
                self.figure.set_dpi(style.PIXELS)
            rgb = np.asarray(canvas.buffer_rgba())[..., :3]
            file = io.BytesIO()
            make_paletted(style.find_colors(rgb)).save(file, "PNG", optimize=True)
            self._png[sharpness] = file.getvalue()
        return self._png[sharpness]

    def save(self, path) -> Path:
        """Write the PNG to `path`, and return that path.

        Raises:
            TypeError: `path` isn't a file's name.
            ValueError: the name doesn't end in .png.
            OSError: the file can't be written; an older file of that name is left as it was.

        >>> kv.draw_step(run).save("step.png").name
        'step.png'
        """
        return files.write_whole(files.to_path(path, ".png"), self.png())

    @property
    def html(self) -> str:
        """The picture as an `<img>`, with its sentence as alt text."""
        return tag("png", self.png(), self.sentence, self.width)[0]

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        image, data = tag("png", self.png(), self.sentence, self.width)
        shown = {"image/png": {"width": self.width, "height": self.height}}
        bundle = {"text/html": FOLDED + image, "image/png": data, "text/plain": self.sentence}
        return bundle, shown

    def __repr__(self) -> str:
        return self.sentence


def tag(kind: str, image: bytes, sentence: str, width: int) -> tuple[str, str]:
    """HTML of an image with its sentence as alt text, and the image in base64."""
    data, alt = base64.b64encode(image).decode(), html.escape(sentence, quote=True)
    looks = "max-width:100%;height:auto;background-color:#ffffff"
    source = f"data:image/{kind};base64,{data}"
    return f'<img alt="{alt}" src="{source}" width="{width}" style="{looks}">', data


def make_paletted(index: np.ndarray) -> Image.Image:
    """An image of palette indexes (H, W), in the colours of `style.make_palette`."""
    image = Image.fromarray(index)
    image.putpalette(_get_palette())
    return image


@cache
def _get_palette() -> bytes:
    return np.array(style.make_palette(), dtype=np.uint8).tobytes()
