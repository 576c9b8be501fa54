"""`Picture`: a finished figure and its text twin, made from the same data."""

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from kvviz import files
from kvviz.drawing import charts as chart
from kvviz.drawing import layout, style
from kvviz.drawing import sentences as say


def tag(kind: str, image: bytes, sentence: str, width: int) -> tuple[str, str]:
    """HTML of an image with its sentence as alt text, and the image in base64."""
    data, alt = base64.b64encode(image).decode(), html.escape(sentence, quote=True)
    looks = "max-width:100%;height:auto;background-color:#ffffff"
    source = f"data:image/{kind};base64,{data}"
    return f'<img alt="{alt}" src="{source}" width="{width}" style="{looks}">', data


def paletted(index: np.ndarray) -> Image.Image:
    """An image of palette indexes [H, W], in the colours of `style.palette`."""
    image = Image.fromarray(index)
    image.putpalette(_palette())
    return image


@cache
def _palette() -> bytes:
    return np.array(style.palette(), dtype=np.uint8).tobytes()


class Picture:
    """A figure with the sentence that says the same; shown once as a cell's last line."""

    def __init__(self, figure: Figure, sentence: str):
        self.figure, self.sentence = figure, sentence
        self._png: dict[float, bytes] = {}

    @classmethod
    def from_square(cls, square, *, span: int | None = None, title: str | None = None) -> "Picture":
        """Draw one square; pictures of one `span` (columns to leave room for) are one size."""
        return _picture([square], span=span, titles=[title])

    @property
    def width(self) -> int:
        """Pixels it is shown at; the PNG holds `style.SHARPNESS` for each."""
        return round(self.figure.get_figwidth() * style.PIXELS)

    @property
    def height(self) -> int:
        """Pixels it is shown at."""
        return round(self.figure.get_figheight() * style.PIXELS)

    def png(self, sharpness: float = style.SHARPNESS) -> bytes:
        """The picture as PNG bytes with a palette, the same every time.

        `sharpness`: stored pixels for each pixel shown; 1 makes the smallest file.
        """
        if sharpness not in self._png:
            with style.scope():
                self.figure.set_dpi(style.PIXELS * sharpness)
                canvas = FigureCanvasAgg(self.figure)
                canvas.draw()
                self.figure.set_dpi(style.PIXELS)
            rgb = np.asarray(canvas.buffer_rgba())[..., :3]
            file = io.BytesIO()
            paletted(style.indexed(rgb)).save(file, "PNG", optimize=True)
            self._png[sharpness] = file.getvalue()
        return self._png[sharpness]

    def save(self, path) -> Path:
        """Write the PNG to `path`."""
        return files.write_whole(path, self.png())

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict, dict]:
        image, data = tag("png", self.png(), self.sentence, self.width)
        shown = {"image/png": {"width": self.width, "height": self.height}}
        return {"text/html": image, "image/png": data, "text/plain": self.sentence}, shown

    def __repr__(self) -> str:
        return self.sentence


def draw_step(
    run,
    *,
    step: int = 0,
    layer: int | None = None,
    head: int = 0,
    sequence=0,
    span=None,
    title=None,
) -> Picture:
    """One head's square at one step, with its four edges: keys, values, queries and outputs.

    Args:
        span: columns to leave room for, so that pictures of several steps are laid out alike.
        title: instead of what there is to see.

    Raises:
        ValueError: no such step, layer, head or sequence in this recording, or too small a span.
    """
    square = _square(run, step, layer, head, sequence)
    return Picture.from_square(square, span=span, title=title)


def draw_side_by_side(
    left, right=None, *, step=0, layer=None, head=0, sequence=0, span=None, titles=None
) -> Picture:
    """Two squares beside each other: two runs at one step, one run at two steps, two heads.

    Args:
        left, right: runs, or squares; the same run twice if `right` is left out.
        step, layer, head, sequence: one number for both, or a pair.
        titles: a pair, instead of what there is to see.

    Raises:
        ValueError: as `draw_step`.
    """
    right = left if right is None else right
    asked = {"step": step, "layer": layer, "head": head, "sequence": sequence}
    pairs = [_pair(name, given) for name, given in asked.items()]
    squares = [
        side if hasattr(side, "row_states") else _square(side, *(pair[i] for pair in pairs))
        for i, side in enumerate((left, right))
    ]
    named: list = [None, None]
    if squares[0].step != squares[1].step:
        named = [f"Step {square.step}" for square in squares]
    elif len({(square.layer, square.head) for square in squares}) > 1:
        named = [f"Layer {square.layer}, head {square.head}" for square in squares]
    seen = [say.title(square, name) for square, name in zip(squares, named, strict=True)]
    return _picture(squares, span=span, titles=_pair("titles", titles) if titles else seen)


def draw_filmstrip(
    run, uncached=None, *, steps: Iterable[int] | None = None, layer=None, head=0, sequence=0
) -> Picture:
    """The same square at several steps, all laid out alike, small and in a line.

    Args:
        steps: the first six unless given.
        layer: the first that was kept unless given.
        uncached: a recording of the same prompt without a cache, drawn above the first.

    Raises:
        ValueError: no steps, or as `draw_step`.
    """
    if isinstance(steps, int):
        raise ValueError(f"steps: expected several, such as range({steps}), and got {steps}")
    steps = list(range(min(len(run), 6)) if steps is None else steps)
    if not steps:
        raise ValueError("steps: expected at least one step, and got none")
    runs = [run] if uncached is None else [uncached, run]
    squares = [_square(each, step, layer, head, sequence) for each in runs for step in steps]
    return _picture(squares, strip=len(steps))


def _picture(squares: Sequence, *, span=None, titles=None, strip: int = 0) -> Picture:
    with style.scope():
        figure = layout.grid(squares, span=span, titles=titles, strip=strip)
    if strip:
        start = layout.starts(squares, True)
        runs = [squares[i : i + strip] for i in range(0, len(squares), strip)]
        return Picture(figure, ". ".join(say.strip(steps, start) for steps in runs))
    return Picture(figure, said(squares))


def said(squares: Sequence) -> str:
    """The sentence of one square, or of two beside each other."""
    start = layout.starts(squares, False)
    each = [say.square(square, start) for square in squares]
    return each[0] if len(each) == 1 else f"left: {each[0]}. right: {each[1]}"


def _pair(name: str, given) -> tuple:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return given, given
    if len(given) != 2:
        raise ValueError(f"{name}: expected one, or a pair, and got {len(given)}")
    return tuple(given)


def _square(run, step, layer, head, sequence):
    """The square asked for, or a ValueError that says what there is."""
    if not hasattr(run, "__getitem__"):
        raise TypeError(f"expected a recording, as kv.record gives it, and got {run!r}")
    for name, given in {"step": step, "head": head, "sequence": sequence}.items():
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise ValueError(f"{name}: expected a whole number, and got {given!r}")
    if not 0 <= step < len(run):
        have = f"steps 0 to {len(run) - 1}" if len(run) else "no steps"
        raise ValueError(f"step {step}: this recording has {have}")
    taken = run[int(step)]
    if layer is None:
        layer = next(iter(getattr(taken, "attention", None) or taken.layers))
    return taken.square(layer, head, sequence)


def draw_curves(
    x, curves: Mapping, *, title: str, xlabel="", ylabel="", sentence=None, log=False, levels=None
) -> Picture:
    """Curves `curves` {name: y} over `x`, each named where it ends.

    Args:
        title: what to see.
        sentence: the text twin, instead of where each curve begins and ends.
        log: a logarithmic y axis.
        levels: {name: y} of dashed lines across.

    Raises:
        ValueError: nothing to draw, lengths that differ, or a logarithm of nothing positive.
    """
    x = np.asarray(x)
    lines = {name: np.asarray(y, dtype=float) for name, y in curves.items()}
    for name, y in lines.items():
        if y.shape != x.shape or x.ndim != 1:
            raise ValueError(f"{name!r}: expected {len(x)} numbers, one for each x; got {y.shape}")
    _some(np.concatenate([[], *lines.values()]), log)
    levels = dict(levels or {})
    right = chart.room([*lines, *levels]) + 24
    figure, ax = chart.page(title, (720, 380), left=76, right=right, labels=(xlabel, ylabel))
    with style.scope():
        chart.curves(ax, x, lines, log=log, levels=levels)
    ends = [
        f"{name} goes from {chart.number(y[0])} to {chart.number(y[-1])}"
        for name, y in lines.items()
    ]
    over = f"over {xlabel or 'x'} {chart.number(x[0])} to {chart.number(x[-1])}"
    marked = [f"{name} at {chart.number(y)}" for name, y in levels.items()]
    return Picture(figure, sentence or f"{title}: {'; '.join([*ends, *marked])}; {over}")


def draw_bars(
    values: Mapping, *, title: str, xlabel="", sentence=None, log=False, levels=None, highlight=()
) -> Picture:
    """A bar for each of `values` {name: length}, its number at its end.

    Args:
        highlight: names of bars that stand out.
        title, sentence, log, levels: as in `draw_curves`; here the x axis is the logarithmic one.

    Raises:
        ValueError: nothing to draw, or a logarithm of nothing positive.
    """
    _some(np.array(list(values.values()), dtype=float), log)
    left, levels = chart.room(values) + 28, dict(levels or {})
    size = (720, 92 + 27 * len(values) + (22 if levels else 0))
    figure, ax = chart.page(title, size, left=left, right=26, labels=(xlabel, ""), low=bool(levels))
    with style.scope():
        chart.bars(ax, values, log=log, levels=levels, highlight=highlight)
    said = [f"{name} {chart.number(value)}" for name, value in {**values, **levels}.items()]
    return Picture(figure, sentence or f"{title}: {', '.join(said)}")


def _some(values: np.ndarray, log: bool) -> None:
    if not np.isfinite(values).any():
        raise ValueError("expected numbers to draw, and got none")
    if log and not (values[np.isfinite(values)] > 0).any():
        raise ValueError("log=True: expected at least one number above zero, and got none")
