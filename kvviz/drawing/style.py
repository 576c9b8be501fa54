"""How things look: each role's colour and each state's mark are defined only here.

A colour says which edge a cell is on, and a mark says what happened to it, so every picture also
reads in grey.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb

KEYS, VALUES, QUERIES, OUTPUTS = "#2868b0", "#bb5020", "#5b4690", "#26784f"
ATTENTION, PAPER = "#17171b", "#ffffff"
ROLES = {
    "keys": KEYS,
    "values": VALUES,
    "queries": QUERIES,
    "outputs": OUTPUTS,
    "attention": ATTENTION,
}

TEXT, QUIET, FAINT = "#1b1b1f", "#545457", "#727277"
LINE, TO_COME, ALARM = "#d0d0d3", "#f7f7fb", "#a3213b"
CHANGES = ("#f1c9c6", "#e09a98", "#c9636b", "#a3213b", "#6e1028")  # little to much
BELOW, ABOVE = "#8a5a00", "#0b7a75"  # numbers under and over zero, also set apart by a mark
LEVELS = (0.28, 0.46, 0.64, 0.82, 1.0)  # tints of a number's size, little to much
UNMOVED = "#eaf0f7"  # a tenth of a key's colour: lighter than any change, even in grey
VEILED = 0.5  # how much of the ink shows through a veil
FIRST_INK = "#eeeef0"  # for a weight of 0: a cell that was computed is never white

STATES = {
    "new": "new",
    "recomputed": "recomputed",
    "cropped": "cropped afterwards",
    "read": "read from the cache",
    "earlier": "from an earlier prompt",
    "same": "as in the earlier step",
    "masked": "masked",
    "not computed": "not computed",
    "not kept": "attention not kept",
    "empty": "empty slot",
    "dropped": "out of the window",
    "pad": "padding",
    "ink": "share of attention",
    "to come": "still to come",
    "not held": "not held",
    "wrong": "wrong",
    "extra": "too many",
    "missing": "missing",
}
FLAWS = ("wrong", "extra", "missing")  # drawn over a cell, whatever its state

# Curves differ in dash and marker, too.
SERIES = (
    ("#1b1b1f", "-", "o"),
    ("#0b7a75", "--", "s"),
    ("#a3213b", "-.", "^"),
    ("#8a5a00", ":", "D"),
    ("#4f5d95", (0, (6, 1, 1, 1, 1, 1)), "v"),
)

# The requests of a serving engine, which also differ in a letter and in a pattern.
REQUESTS = (
    "#0b7a75",
    "#8c2f78",
    "#8a5a00",
    "#4f5d95",
    "#56691c",
    "#96432f",
    "#1f6f94",
    "#45454d",
)
PALE = 0.25  # of a request's colour, for what an earlier step wrote
KEPT = "#9c9ca4"  # pages that no request uses any more, but whose contents stay

CELL, SMALLEST_NUMBER = 33, 0.15  # pixels; a share of attention
TITLE, NUMBERS, LABEL, SMALL = 12, 9, 9, 8  # points
PIXELS, SHARPNESS = 96, 1.5  # pixels an inch, as displayed; stored pixels for each of them


def tint(color: str, amount: float) -> str:
    """`color` mixed with paper; amount 1 is the colour, 0 is paper."""
    return to_hex(amount * np.array(to_rgb(color)) + (1 - amount) * np.array(to_rgb(PAPER)))


def fill(role: str, state: str) -> str:
    """Fill colour of an edge's cell with this role and state."""
    strength = {"new": 1.0, "recomputed": 0.6, "read": 0.23, "earlier": 0.23, "same": 0.23}
    return tint(ROLES[role], strength[state]) if state in strength else PAPER


def find_outline(role: str, state: str) -> str | None:
    """The colour of the line around an edge's cell with this role and state; None without one."""
    return {"cropped": ROLES[role], "empty": LINE}.get(state)


def get_width(state: str) -> float:
    """Points of the line around a cell in this state, if it has one."""
    return 1.0 if state == "cropped" else 0.8


def fill_request(color: str, new: bool) -> str:
    """Fill colour of a request's cell: strong if this step wrote it, else pale."""
    return color if new else tint(color, PALE)


def tint_number(level: int) -> str:
    """Colour of a number of this level: -5 is far under zero, 0 about zero, 5 far over it."""
    if level == 0:
        return FIRST_INK
    return tint(ABOVE if level > 0 else BELOW, LEVELS[abs(level) - 1])


def ink(weights) -> np.ndarray:
    """RGB [..., 3] of attention weights 0..1, on one linear scale for all rows."""
    weights = np.clip(np.asarray(weights, dtype=float), 0, 1)[..., None]
    return (1 - weights) * np.array(to_rgb(FIRST_INK)) + weights * np.array(to_rgb(ATTENTION))


def luminance(color) -> float:
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other) -> float:
    """Contrast ratio of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def text_on(color) -> str:
    """Black or white, whichever reads better on `color`; at least 4.5 to 1 on any."""
    return max(("#000000", "#ffffff"), key=lambda text: contrast(text, color))


def make_palette() -> list[tuple[int, int, int]]:
    """Every colour a picture may hold: fills exactly, greys finely, edges of text coarsely."""
    greys = list(ink(np.linspace(0, 1, 29)))
    solid = [*ROLES.values(), *(color for color, *_ in SERIES), QUIET, FAINT, LINE, TO_COME, ALARM]
    solid += [*REQUESTS, KEPT]
    fills = [fill(role, state) for role in list(ROLES)[:4] for state in ("recomputed", "read")]
    fills.append(UNMOVED)
    fills += [fill_request(color, False) for color in REQUESTS]
    greys += [tint(to_hex(grey), VEILED) for grey in greys]
    soft = [tint(color, share) for color in [*solid, *CHANGES] for share in (0.66, 0.33)]
    soft += [tint(color, share) for color in (BELOW, ABOVE) for share in LEVELS]
    colors = np.array([to_rgb(color) for color in [PAPER, *solid, *fills, *CHANGES, *greys, *soft]])
    alone: dict[tuple, tuple] = {}  # one colour in each box of 8 x 8 x 8: no two get mixed up
    for color in np.rint(255 * colors).astype(int).tolist():
        alone.setdefault(tuple(part >> 3 for part in color), tuple(color))
    return list(alone.values())[:256]


@cache
def _find_nearest() -> np.ndarray:
    """[32, 32, 32] uint8: which palette colour a box of colours goes to."""
    colors = np.array(make_palette())
    box = np.stack(np.meshgrid(*[np.arange(32) * 8 + 4] * 3, indexing="ij"), -1)
    nearest = np.empty((32, 32, 32), dtype=np.uint8)
    for red in range(32):
        nearest[red] = ((box[red, :, :, None] - colors) ** 2).sum(-1).argmin(-1)
    nearest[tuple((colors >> 3).T)] = np.arange(len(colors))
    return nearest


def find_colors(pixels: np.ndarray) -> np.ndarray:
    """Palette index [H, W] of RGB pixels [H, W, 3]; every colour defined here stays exact."""
    red, green, blue = np.moveaxis(pixels >> 3, -1, 0)
    return _find_nearest()[red, green, blue]


@contextmanager
def scope() -> Iterator[None]:
    """Our matplotlib settings inside the block; the caller's are untouched outside it."""
    ours, theirs = _read_settings(), mpl.rcParams
    changed = {name: theirs[name] for name, value in ours.items() if theirs[name] != value}
    theirs.update({name: ours[name] for name in changed})
    try:
        yield
    finally:
        theirs.update(changed)


@cache
def _read_settings() -> dict:
    """Every setting but the backend: matplotlib's own, and ours over them."""
    file = Path(__file__).with_name("kvviz.mplstyle")
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(file, use_default_template=False))
        return {name: mpl.rcParams[name] for name in mpl.rcParams if name != "backend"}
