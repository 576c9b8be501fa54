"""A stepper in a web page: the page holds its frames, so it needs no kernel and no network.

The page runs the same JavaScript module as JupyterLab. `page.js` stands in for the kernel: it
answers with what `Stepper.answer` returned when the page was written.
"""

import html
import json
from pathlib import Path

import anywidget

from kvviz import files
from kvviz.arguments import describe, is_iterable
from kvviz.widgets.album import Album
from kvviz.widgets.stepper_checks import check_head, check_layer

HERE = Path(__file__).parent
# A page holds the layer and head it starts with, and others as long as their frames fit into this
# many bytes.
MOST_BYTES = 2_000_000
# Under the still picture of a stepper, wherever no kernel runs it.
RUN_IT = "\n<p>Run this cell to step through it.</p>"
NO_REQUESTS = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline' blob:"
)


def save(stepper, path, heads: dict | None = None) -> Path:
    """Write a page that holds only this stepper; `Stepper.save` lists the errors."""
    path = files.to_path(path, ".html")
    wanted = list_pairs(stepper.heads, heads)
    files.check_folder(path)  # before anything is drawn
    title = stepper.title
    hint = (
        "Use the left and right arrow keys to move from step to step. Recorded and drawn by kvviz."
    )
    body = f"<h1>{html.escape(title)}</h1>\n{embed(stepper, wanted)}\n<p>{hint}</p>"
    return files.write_whole(path, compose(title, body, {}))


def list_pairs(known: dict[int, int], heads) -> list[tuple[int, int]]:
    """(layer, head) of each head in {layer: heads}; ValueError if there is no such head."""
    if heads is None:
        return []
    if not isinstance(heads, dict):
        raise ValueError(f"heads: expected {{layer: heads}}, but got {describe(heads)}")
    return [
        (check_layer(layer, known), check_head(head, layer, known))
        for layer, numbers in heads.items()
        for head in (numbers if is_iterable(numbers) else [numbers])
    ]


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


def embed(stepper, wanted=()) -> str:
    """HTML of a working stepper; where scripts are off, it shows the cell's picture.

    `wanted` lists the (layer, head) pairs to hold before any others.
    """
    bundle, _ = stepper._repr_mimebundle_()
    still = bundle.get("text/html") or f"<p>{html.escape(bundle['text/plain'])}</p>"
    still = still.replace(RUN_IT, "")  # a page has no cell to run
    content = collect(stepper, wanted)
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    known, held = stepper._about, content["state"]["_about"]
    limit = describe_limit(dict(known["heads"]), dict(held["heads"]))
    limit = limit or describe_views(known.get("views", ()), held.get("views", ()))
    return (
        f'<div><noscript>{still}</noscript>\n<script type="application/json">{data}</script>\n'
        f"<script>\n{(HERE / 'page.js').read_text()}</script>{limit}</div>"
    )


def describe_limit(known: dict, held: dict) -> str:
    """A paragraph that says which layers and heads a page holds; empty if it holds them all."""
    if known == held:
        return ""
    whole = [layer for layer in held if held[layer] == known[layer]]
    parts = [f"all heads of layer{'s' * (len(whole) > 1)} {_list(whole)}"] if whole else []
    parts += [
        f"head{'s' * (len(heads) > 1)} {_list(heads)} of layer {layer}"
        for layer, heads in held.items()
        if layer not in whole
    ]
    return f"<p>This page holds only part of the recording: {'; '.join(parts)}.</p>"


def describe_views(known, held) -> str:
    """A paragraph that says which views a page holds; empty if it holds them all."""
    if len(known) == len(held):
        return ""
    return f"<p>This page holds only part: {_list([words for _, words in held])}.</p>"


def _list(things: list) -> str:
    *first, last = map(str, things)
    return f"{', '.join(first)} and {last}" if first else last


def collect(stepper, wanted=()) -> dict:
    """What `page.js` reads: the module, the stepper's state, its answers and their pictures."""
    own = set(stepper.trait_names(sync=True)) - set(anywidget.AnyWidget.class_trait_names())
    state = {name: getattr(stepper, name) for name in own if not name.startswith("_")}
    about, album, answers = dict(stepper._about), Album(), {}
    if about.get("views"):
        _collect_views(stepper, about, album, answers)
    else:
        _collect_heads(stepper, about, wanted, album, answers)
    return {
        "module": str(stepper._esm),
        "style": str(stepper._css),
        "state": {**state, "_about": about},
        "answers": answers,
        "pictures": album.pictures,
    }


def _is_full(album: Album, answers: dict) -> bool:
    return album.size + len(json.dumps(answers)) > MOST_BYTES


def _collect_views(stepper, about: dict, album: Album, answers: dict) -> None:
    """Add every step of the view that it starts with, and of the others as long as they fit."""
    held = []
    for view, _ in sorted(about["views"], key=lambda each: each[0] != stepper.view):
        if held and _is_full(album, answers):
            break
        for step in range(about["steps"]):
            _answer(stepper, {"frame": [view, step]}, album, answers, like=view)
        held.append(view)
    about["views"] = [each for each in about["views"] if each[0] in held]


def _collect_heads(stepper, about: dict, wanted, album: Album, answers: dict) -> None:
    """Add every step of the head that it starts with, and of others as long as they fit."""
    known, held = dict(about["heads"]), {}
    for layer, head in choose(known, stepper.layer, stepper.head, wanted):
        if held and _is_full(album, answers):
            break
        _answer_steps(stepper, "frame", [layer, head], album, answers)
        held.setdefault(layer, []).append(head)
    about["heads"] = [(layer, sorted(held[layer])) for layer in sorted(held)]
    whole = len(held[stepper.layer]) == len(known[stepper.layer])
    about["overview"] = [each for each in about["overview"] if whole and each == stepper.layer]
    for layer in about["overview"]:
        _answer_steps(stepper, "heads", [layer], album, answers)


def _answer_steps(stepper, kind: str, which: list[int], album: Album, answers: dict) -> None:
    """Add the answers to every step's request for a frame or for all heads."""
    for cached in stepper.runs if stepper._about["switch"] else [stepper.cached]:
        for step in range(stepper._about["steps"]):
            request = {kind: [cached, *which, step]}
            _answer(stepper, request, album, answers, like=(kind, cached, step))


def _answer(stepper, request: dict, album: Album, answers: dict, like) -> None:
    """Add the answer to one request; pictures added with the same `like` look alike."""
    message, pictures = stepper.answer(request)
    stacks = [album.add(png, like=like) for png in pictures]
    answers[json.dumps(request, separators=(",", ":"))] = message, stacks


def choose(heads: dict, layer: int, head: int, wanted=()) -> list[tuple[int, int]]:
    """(layer, head) pairs in the order in which a page holds them, as long as there's room.

    The pair it starts with, those wanted, the other heads of that layer, and the same head in the
    first and the last layer.
    """
    pairs = [(layer, head), *wanted, *((layer, n) for n in heads[layer])]
    pairs += [(each, head) for each in (min(heads), max(heads)) if head in heads[each]]
    return list(dict.fromkeys(pairs))
