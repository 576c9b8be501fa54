"""A stepper in a web page: the page holds its frames, so it needs no kernel and no network.

The page runs the same JavaScript module as JupyterLab. `page.js` stands in for the kernel: it
answers with what `Stepper.answer` returned when the page was written.
"""

import base64
import html
import io
import json
from pathlib import Path

import anywidget
from PIL import Image

from kvviz import files

HERE = Path(__file__).parent
# A page holds at most this many layers, and this many heads of each, as long as their frames fit
# into this many bytes. The layer and head that it starts with are always included.
LAYERS, HEADS = 3, 2
MOST_BYTES = 1_100_000
NO_REQUESTS = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' blob:"
)


def save(stepper, path) -> Path:
    """Write a page that holds only this stepper; `Stepper.save` lists the errors."""
    path = files.to_path(path, ".html")
    files.check_folder(path)  # before anything is drawn
    hint = (
        "Use the left and right arrow keys to move from step to step. Recorded and drawn by kvviz."
    )
    body = f"<h1>A run, step by step</h1>\n{embed(stepper)}\n<p>{hint}</p>"
    return files.write_whole(path, compose("A run, step by step", body, {}))


def compose(title: str, body: str, links: dict[str, str]) -> str:
    """The HTML of a whole page, with links {text: address} at the top. It can't send requests."""
    links = [f'<a href="{html.escape(to)}">{html.escape(name)}</a>' for name, to in links.items()]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{NO_REQUESTS}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>\n{(HERE / 'page.css').read_text()}</style>\n</head>\n<body>\n"
        f"{'<nav>' + ' '.join(links) + '</nav>' if links else ''}\n"
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def embed(stepper) -> str:
    """HTML of a working stepper; where scripts are off, it shows the cell's picture."""
    bundle, _ = stepper._repr_mimebundle_()
    still = bundle.get("text/html") or f"<p>{html.escape(bundle['text/plain'])}</p>"
    content = collect(stepper)
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    held = ", ".join(
        f"layer {layer} (head{'s' * (len(heads) > 1)} {' and '.join(map(str, heads))})"
        for layer, heads in content["state"]["_about"]["heads"]
    )
    limit = f"<p>This page holds only part of the recording: {held}. It can't show all heads.</p>"
    return (
        f'<div><noscript>{still}</noscript>\n<script type="application/json">{data}</script>\n'
        f"<script>\n{(HERE / 'page.js').read_text()}</script>{limit}</div>"
    )


def collect(stepper) -> dict:
    """What `page.js` reads: the module, the stepper's state, its answers and their pictures."""
    own = set(stepper.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
    state = {name: getattr(stepper, name) for name in own if not name.startswith("_")}
    runs = list(stepper.runs) if stepper._about["switch"] else [stepper.cached]
    answers, pictures, heads, room, largest = {}, {}, {}, MOST_BYTES, 0
    for layer, head in choose(stepper._about["heads"], stepper.layer, stepper.head):
        if room < largest:
            break
        before = room
        for cached in runs:
            for step in range(stepper._about["steps"]):
                request = {"frame": [cached, layer, head, step]}
                message, frames = stepper.answer(request)
                frames = [compress(png) for png in frames]
                room -= len(json.dumps(message)) + sum(len(f) for f in frames if f not in pictures)
                numbers = [pictures.setdefault(f, len(pictures)) for f in frames]  # no duplicates
                answers[json.dumps(request, separators=(",", ":"))] = message, numbers
        largest = max(largest, before - room)
        heads.setdefault(layer, []).append(head)
    in_page = [(layer, sorted(heads[layer])) for layer in sorted(heads)]
    about = {**stepper._about, "heads": in_page, "overview": False}  # a page has only some heads
    return {
        "module": str(stepper._esm),
        "style": str(stepper._css),
        "state": {**state, "_about": about},
        "answers": answers,
        "pictures": list(pictures),
    }


def choose(heads, layer: int, head: int) -> list[tuple[int, int]]:
    """(layer, head) for a page: the ones it starts with, another head, and two distant layers."""
    heads = dict(heads)
    layers, own = list(heads), heads[layer]
    far = list(dict.fromkeys([layer, layers[0], layers[-1], layers[len(layers) // 2]]))
    pair = list(dict.fromkeys([head, own[0], own[-1]]))[:HEADS]
    return [(each, n) for each in far[:LAYERS] for n in pair if n in heads[each]]


def compress(png: bytes) -> str:
    """The same pixels as base64 of a lossless WebP, two thirds the size of the PNG.

    A browser recognizes a picture's format from its bytes, whatever type it is given.
    """
    file = io.BytesIO()
    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.save(file, "WEBP", lossless=True, method=3, quality=50)
    return base64.b64encode(file.getvalue()).decode()
