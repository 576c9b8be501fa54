"""Whatever fonts are installed, each character is in the font that draws it."""

from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import FontEntry, fontManager, get_font
from matplotlib.text import Text
from small import llama
from test_any_text import PROMPTS, recorded, split

import kvviz as kv
from kvviz.drawing import fonts

pytestmark = pytest.mark.filterwarnings("error")
CJK = "语言モデル语"
# Like the fonts of some Debian packages: ideographs, but no full stop.
HAS = {"ideographs alone": CJK, "one of two": "语", "with a full stop": CJK + ".", "none": ""}
TEXTS = ["语言", "语言.", "语.", "a语", "语" * 60, "语言 モデル.", "语…", " 语", "  语 "]


def write_font(path, characters):
    """Write a font of black boxes for these characters and no others, not even a space."""
    names = {ord(character): f"u{ord(character):x}" for character in characters}
    pen = TTGlyphPen(None)
    for move, point in zip("mlll", [(100, 0), (100, 800), (900, 800), (900, 0)], strict=True):
        (pen.moveTo if move == "m" else pen.lineTo)(point)
    pen.closePath()
    order = [".notdef", *names.values()]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(order)
    font.setupCharacterMap(names)
    box = pen.glyph()
    font.setupGlyf(dict.fromkeys(order, box))
    font.setupHorizontalMetrics(dict.fromkeys(order, (1000, 100)))
    font.setupHorizontalHeader(ascent=900, descent=-100)
    font.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(path)
    return str(path)


@pytest.fixture(params=HAS)
def installed(request, tmp_path, monkeypatch):
    """Install one font in addition to matplotlib's own."""
    path = write_font(tmp_path / "boxes.ttf", HAS[request.param])
    own = [entry for entry in fontManager.ttflist if Path(entry.fname).parent == fonts.FONTS]
    monkeypatch.setattr(fontManager, "ttflist", [*own, FontEntry(fname=path, name="Boxes")])
    forget()
    yield
    forget()


def forget():
    """Forget what was found out about the fonts before."""
    for each in vars(fonts).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def lacking(picture):
    """Each text of a picture, with the characters that its font lacks."""
    for artist in picture.figure.findobj(Text):
        has = get_font(artist.get_fontproperties().get_file() or fonts.REGULAR).get_charmap()
        if lacks := [c for c in artist.get_text() if ord(c) not in has]:
            yield artist.get_text(), lacks


@pytest.fixture(scope="module")
def model():
    return llama()


def test_each_character_drawn_is_in_its_font_and_nothing_warns(installed, model):
    pieces = [*TEXTS, *split(PROMPTS["CJK"])]
    run = recorded(model, pieces)
    pictures = [
        kv.draw_step(run, step=1, layer=1),
        kv.draw_heads(run, step=1, layer=1),
        kv.draw_column([[1.0] * len(TEXTS)], tokens=TEXTS, title="语言."),
        kv.draw_bars({text: 1.0 for text in TEXTS if len(text) < 60}, title="语言.", xlabel="语."),
        kv.draw_curves([1, 2], {"语.": [1, 2], "语言": [2, 1]}, title="语言.", xlabel="语."),
    ]
    for picture in pictures:
        assert picture.png(sharpness=1)
        assert [*lacking(picture)] == []
    walk = kv.stepper(run, step=1)
    assert walk.frame
