"""`animate`: a recording as a small moving picture, to send to somebody."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from kvviz.drawing.picture import tag
from kvviz.widgets import page
from kvviz.widgets.stepper import stepper


class Animation:
    """A GIF with its text twin; shown where it is a cell's last line."""

    def __init__(self, path: Path, sentence: str, width: int):
        self.path, self.sentence, self.width = path, sentence, width

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        image, _ = tag("gif", self.path.read_bytes(), self.sentence, self.width)
        return {"text/html": image, "text/plain": self.sentence}

    def __repr__(self) -> str:
        return self.sentence


def animate(
    run, path, uncached=None, *, layer=None, head=None, steps=None, seconds=0.9, batch=0
) -> Animation:
    """Write a recording as a GIF, a frame a step: the square becomes one row, the edges grow.

    Args:
        run: a recording that kept attention.
        path: where to write it, a name that ends in .gif.
        uncached: a recording of the same prompt without a cache, drawn beside it.
        layer, head, batch: which square; the first that was kept, head 0, batch row 0.
        steps: which steps, all of them by default.
        seconds: how long each is shown; the last one stays three times as long. Then it repeats.

    Raises:
        TypeError: not a recording.
        ValueError: another kind of file, no such step, layer or head, or a time that is none.
        OSError: it cannot be written there; what was there stays.
    """
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise ValueError(f"path: expected a name that ends in .gif, and got {path.name!r}")
    if not path.parent.is_dir():  # said before all is drawn
        raise FileNotFoundError(f"expected a folder to write into, and there is no {path.parent}")
    if not 0.02 <= seconds <= 60:
        raise ValueError(f"seconds: expected 0.02 to 60 for each frame, and got {seconds}")
    walk = stepper(run, uncached, layer=layer, head=head, batch=batch, beside=uncached is not None)
    steps = list(range(len(run)) if steps is None else steps)
    if not steps or not all(step in range(len(run)) for step in steps):
        raise ValueError(f"steps: expected some of 0 to {len(run) - 1}, and got {steps}")
    frames = []
    for walk.step in steps:
        frames.append(Image.open(io.BytesIO(walk.frame)))
    sentence, width = f"{len(steps)} steps, at the end {walk.sentence}", walk.size[0]
    walk.close()
    durations = [round(1000 * seconds)] * (len(frames) - 1) + [round(3000 * seconds)]
    looks = {"duration": durations, "loop": 0, "optimize": True, "save_all": True}
    whole = io.BytesIO()
    frames[0].save(whole, "GIF", append_images=frames[1:], **looks)
    page.write(path, whole.getvalue())
    return Animation(path, sentence, width)
