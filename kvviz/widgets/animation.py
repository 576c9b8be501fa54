"""`animate`: a recording as a GIF that you can send to someone."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from kvviz import files
from kvviz.arguments import describe, is_number, is_whole, list_several
from kvviz.drawing.picture import FOLDED, tag
from kvviz.widgets.stepper import stepper


class Animation:
    """What `animate` returns: a GIF and its sentence, which a cell's last line shows."""

    def __init__(self, gif: bytes, sentence: str, width: int):
        self.gif, self.sentence, self.width = gif, sentence, width

    def save(self, path) -> Path:
        """Write the GIF to `path`.

        Raises:
            TypeError: `path` isn't a file's name.
            ValueError: the name doesn't end in .gif.
            OSError: the file can't be written; an older file of that name is left as it was.

        >>> kv.animate(run, steps=[0, 1]).save("mine.gif").name
        'mine.gif'
        """
        return files.write_whole(files.to_path(path, ".gif"), self.gif)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        image, _ = tag("gif", self.gif, self.sentence, self.width)
        return {"text/html": FOLDED + image, "text/plain": self.sentence}

    def __repr__(self) -> str:
        return self.sentence


def animate(
    run, uncached=None, *, steps=None, layer=None, head=0, sequence=0, seconds=0.9
) -> Animation:
    """Draw a recording as a GIF, one frame per step: the square becomes a row, the edges grow.

    Args:
        run: a recording that kept attention.
        uncached: a recording of the same prompt without a cache, drawn beside `run`.
        steps: which steps; all of them by default.
        layer, head, sequence: which square. By default the first layer that was kept, head 0 and
            sequence 0.
        seconds: how long each frame is shown, 0.02 to 60. The last one stays three times as long
            before the GIF starts again.

    Raises:
        TypeError: `run` or `uncached` isn't a recording.
        ValueError: there is no such step, layer, head or sequence, or `seconds` is out of range.

    >>> animation = kv.animate(run, uncached=uncached, steps=range(3), seconds=0.5)
    >>> animation.gif[:6]
    b'GIF89a'
    """
    if not is_number(seconds) or not 0.02 <= seconds <= 60:
        came = describe(seconds)
        raise ValueError(f"seconds: expected 0.02 to 60 for each frame, but got {came}")
    seconds = float(seconds)
    walk = stepper(
        run,
        uncached=uncached,
        layer=layer,
        head=head,
        sequence=sequence,
        beside=uncached is not None,
    )
    walk.zooms = False  # so that the edges are seen to grow
    try:
        steps = range(len(run)) if steps is None else steps
        steps = list_several("steps", steps, "several, such as range(3)")
        if not steps or not all(is_whole(step) and 0 <= step < len(run) for step in steps):
            raise ValueError(
                f"steps: expected some of 0 to {len(run) - 1}, but got {describe(steps)}"
            )
        frames = []
        for walk.step in map(int, steps):
            frames.append(Image.open(io.BytesIO(walk.frame)))
        sentence, width = f"{len(steps)} steps, at the end {walk.sentence}", walk.size[0]
    finally:
        walk.close()
    gif = io.BytesIO()
    frames[0].save(
        gif,
        "GIF",
        append_images=frames[1:],
        save_all=True,
        optimize=True,
        duration=[round(1000 * seconds)] * (len(frames) - 1) + [round(3000 * seconds)],
        loop=0,
    )
    return Animation(gif.getvalue(), sentence, width)
