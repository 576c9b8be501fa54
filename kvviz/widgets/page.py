"""A stepper as a part of a web page: its frames beside it, no kernel, no network.

The page runs the very module that JupyterLab runs. `page.js` stands in for the kernel: it answers
from what `Stepper._reply` said when the page was written.
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
LAYERS, HEADS = 3, 2  # a page holds at most so many layers, and so many heads of each,
ROOM = 1_100_000  # and of those as many as fit into so many bytes, but always at least one
ASKS_NOBODY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' blob:"
)


def save(stepper, path) -> Path:
    """Write a page with this stepper alone; `Stepper.save` says what raises."""
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"expected a name that ends in .html, and got {path.name!r}")
    files.check_folder(path)  # before anything is drawn
    told = "The left and right arrow keys walk the steps. Recorded and drawn by kvviz."
    body = f"<h1>A run, step by step</h1>\n{fragment(stepper)}\n<p>{told}</p>"
    return files.write_whole(path, whole("A run, step by step", body, {}))


def whole(title: str, body: str, links: dict[str, str]) -> str:
    """A page of this HTML under these links, {text: address}. It may ask nobody for anything."""
    links = [f'<a href="{html.escape(to)}">{html.escape(name)}</a>' for name, to in links.items()]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{ASKS_NOBODY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>\n{(HERE / 'page.css').read_text()}</style>\n</head>\n<body>\n"
        f"{'<nav>' + ' '.join(links) + '</nav>' if links else ''}\n"
        f"<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def fragment(stepper) -> str:
    """HTML in which the stepper steps; where scripts are off, the picture its cell would show."""
    shown, _ = stepper._repr_mimebundle_()
    still = shown.get("text/html") or f"<p>{html.escape(shown['text/plain'])}</p>"
    held = _held(stepper)
    data = json.dumps(held, separators=(",", ":")).replace("<", "\\u003c")
    there = ", ".join(
        f"{layer} (heads {_listed(heads)})" for layer, heads in held["state"]["_about"]["heads"]
    )
    only = f"<p>This page holds layer {there} of the recording, and not all heads at once.</p>"
    return (
        f'<div><noscript>{still}</noscript>\n<script type="application/json">{data}</script>\n'
        f"<script>\n{(HERE / 'page.js').read_text()}</script>{only}</div>"
    )


def _listed(numbers) -> str:
    return " and ".join(map(str, numbers))


def _held(stepper) -> dict:
    """What `page.js` needs: the module, where the stepper stands, and answers with pictures."""
    mine = set(stepper.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
    state = {name: getattr(stepper, name) for name in mine if not name.startswith("_")}
    runs = list(stepper.runs) if stepper._about["switch"] else [stepper.cached]
    answers, pictures, heads, room, most = {}, {}, {}, ROOM, 0
    for layer, head in _chosen(stepper._about["heads"], stepper.layer, stepper.head):
        if room < most:
            break
        before = room
        for cached in runs:
            for step in range(stepper._about["steps"]):
                asked = {"frame": [cached, layer, head, step]}
                message, drawn = stepper._reply(asked)
                drawn = [_small(png) for png in drawn]
                room -= len(json.dumps(message)) + sum(len(d) for d in drawn if d not in pictures)
                drawn = [pictures.setdefault(d, len(pictures)) for d in drawn]  # equal ones once
                answers[json.dumps(asked, separators=(",", ":"))] = message, drawn
        most = max(most, before - room)
        heads.setdefault(layer, []).append(head)
    there = [(layer, sorted(heads[layer])) for layer in sorted(heads)]
    about = {**stepper._about, "heads": there, "overview": False}  # not all heads are here
    state = {**state, "_about": about}
    module = {"module": str(stepper._esm), "style": str(getattr(stepper, "_css", ""))}
    return {**module, "state": state, "answers": answers, "pictures": list(pictures)}


def _chosen(heads, layer: int, head: int) -> list[tuple[int, int]]:
    """(layer, head) to hold: where it stands, another head, then the same in layers far away."""
    heads = dict(heads)
    layers, others = list(heads), heads[layer]
    far = [layer, layers[0], layers[-1], layers[len(layers) // 2]]
    both = list(dict.fromkeys([head, others[0], others[-1]]))[:HEADS]
    return [
        (place, each)
        for place in list(dict.fromkeys(far))[:LAYERS]
        for each in both
        if each in heads[place]
    ]


def _small(png: bytes) -> str:
    """The same pixels in fewer bytes, as text: WebP without loss, two thirds of the PNG.

    A browser tells what a picture is from its bytes, whatever it is called.
    """
    file = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(
        file, "WEBP", lossless=True, method=3, quality=50
    )
    return base64.b64encode(file.getvalue()).decode()
