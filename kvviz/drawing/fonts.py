"""Fonts for any text: every character is drawn or escaped, without warnings."""

from bisect import bisect_right
from functools import cache, lru_cache
from pathlib import Path

import matplotlib
from matplotlib import font_manager
from matplotlib.font_manager import FontProperties

from kvviz.tokens import escaped, find_mark, visible

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
REGULAR, BOLD = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSans-Bold.ttf")
# The character tables of these fonts are wrong: letters sit where other characters belong.
_NO_FALLBACK = ("cm", "STIXSize", "STIXNon", "Last Resort")


@cache
def _glyphs(path: str) -> frozenset[int]:
    return frozenset(font_manager.get_font(path).get_charmap())


@cache
def _find_fallback(character: str) -> str | None:
    """Path of an installed font that has `character`, or None."""
    for entry in font_manager.fontManager.ttflist:
        if entry.name.startswith(_NO_FALLBACK) or not Path(entry.fname).is_file():
            continue
        if font_manager.get_font(entry.fname).scalable and ord(character) in _glyphs(entry.fname):
            return entry.fname
    return None


def choose_font(words: str, *, bold: bool = False) -> tuple[str, str]:
    """`words` and the path of a font that has them; characters that no font has are escaped."""
    path = BOLD if bold and all(ord(character) in _glyphs(BOLD) for character in words) else REGULAR
    missing = [character for character in words if ord(character) not in _glyphs(path)]
    if missing:
        other = _find_fallback(missing[0])
        if other and all(ord(character) in _glyphs(other) for character in words):
            return words, other
        has = {character: character for character in words if character not in missing}
        words = "".join(has.get(c) or escaped(c) for c in words)
    return words, path


def make_label(token: str, *, bold: bool = False, size: float = 9, width: float = 1e9):
    """Text and font of a token's label: the space before a word is dropped, other spaces show.

    `size` in points; text wider than `width` points is cut and ends in an ellipsis. The number of
    a character's piece is kept.
    """
    shown = visible(token)
    word = shown[1:] if shown[:1] == " " and shown[1:2] not in ("", " ") else shown
    inner = word.strip(" ")
    start = len(word) - len(word.lstrip(" "))
    word = "␣" * start + inner + "␣" * (len(word) - start - len(inner))
    word, path = choose_font(word, bold=bold)
    face = get_font(path, size)
    if measure(word, face) > width:
        mark = find_mark(word)  # of a piece: without its number, all pieces would look the same
        word, end = word.removesuffix(mark), "…" * (ord("…") in _glyphs(path)) + mark
        wide = bisect_right(range(len(word)), width, key=lambda n: measure(word[:n] + end, face))
        word = word[: max(0, wide - 1)] + end
    return word, face


@cache
def get_font(path: str, size: float) -> FontProperties:
    """A font to draw with; it is shared, so don't change it."""
    return FontProperties(fname=path, size=size)


def measure(words: str, font: FontProperties) -> float:
    """Width of one line of `words` in points."""
    return _measure(words, font.get_file() or REGULAR, font.get_size_in_points())


@lru_cache(4096)
def _measure(words: str, path: str, size: float) -> float:
    face = font_manager.get_font(path)
    face.set_size(size, 72)
    face.set_text(words)
    return face.get_width_height()[0] / 64
