"""`export_page`: a notebook as a web page whose steppers need no kernel and no network."""

import re
from functools import cache
from pathlib import Path

import nbformat
from ipywidgets.widgets import widget as live
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode, v4

from kvviz import files
from kvviz.arguments import describe
from kvviz.widgets import page
from kvviz.widgets.serving_stepper import ServingStepper
from kvviz.widgets.stepper import Stepper

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# Runs in the kernel, after the notebook's own cells.
COLLECT = "import kvviz.widgets.site\nkvviz.widgets.site.embed_steppers({})"
NAMED_HEAD = re.compile(r"\blayer=(\d+), head=(\d+)")
SECONDS = 600  # the longest a cell may take
# An answer stays folded: the cell's metadata says so, here as in JupyterLab. What the highlighter
# gives is escaped already, and cleaning it once more would take half of a page's time.
FOLDED = """{% extends "basic/index.html.j2" %}
{% block output_group %}
{% if cell.metadata.get("jupyter", {}).get("outputs_hidden") %}
<details class="answer"><summary>Show what this cell gives</summary>{{ super() }}</details>
{% else %}{{ super() }}{% endif %}
{% endblock %}
{% block input %}
<div class="inner_cell">
    <div class="input_area">
{{ cell.source | highlight_code(metadata=cell.metadata) }}
    </div>
</div>
{% endblock %}"""
TO_NOTEBOOK = re.compile(r'href="((?!\w+:)[^"#]+)\.ipynb(#[^"]*)?"')


def export_page(notebook, folder, *, links=None) -> Path:
    """Write a notebook as one web page into `folder`, and return the page's path.

    A notebook with a stepper is run, because a kernel must draw the frames. Any other notebook
    is shown with its stored outputs. Links to other notebooks become links to their pages.

    Args:
        notebook: path of an .ipynb file.
        folder: where the page goes; it's created if it doesn't exist.
        links: {text: address} to show above the title.

    Raises:
        TypeError: `notebook` isn't the name of a file, or `folder` of a folder.
        ValueError: the file isn't a notebook, or `links` aren't {text: address}.
        nbclient.exceptions.CellExecutionError: a cell failed.
        OSError: the notebook can't be read or the page can't be written; an older page is left as
            it was.

    >>> kv.export_page("no-such.ipynb", "pages")
    Traceback (most recent call last):
    FileNotFoundError: no-such.ipynb: expected a file, but there's none of this name
    """
    notebook = files.check_file(files.to_path(notebook, what="notebook"))
    folder, links = files.to_path(folder, what="folder"), {} if links is None else links
    pairs = [*links, *links.values()] if isinstance(links, dict) else [None]
    if not all(isinstance(each, str) for each in pairs):
        raise ValueError(f"links: expected {{text: address}}, but got {describe(links)}")
    nb = read(notebook)
    if has_stepper(nb):
        run(nb, notebook.parent)
    body, _ = _exporter().from_notebook_node(nb)
    body = TO_NOTEBOOK.sub(lambda link: f'href="{link[1]}.html{link[2] or ""}"', body)
    folder.mkdir(parents=True, exist_ok=True)
    title = find_title(nb) or notebook.stem
    return files.write_whole(folder / f"{notebook.stem}.html", page.compose(title, body, links))


def read(notebook: Path) -> NotebookNode:
    """The notebook in a file; ValueError if the file isn't one."""
    try:
        nb = nbformat.read(notebook, as_version=4)
        nbformat.validate(nb)
    except (ValueError, nbformat.ValidationError, AttributeError, KeyError) as error:
        raise ValueError(f"{notebook}: expected a notebook: {str(error)[:200]}") from error
    return nb


@cache
def _exporter() -> HTMLExporter:
    return HTMLExporter(
        # The cells alone, without nbconvert's own scripts and styles.
        raw_template=FOLDED,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )


def has_stepper(nb: NotebookNode) -> bool:
    """Whether the notebook must be run to make its page."""
    return any("stepper(" in cell.source for cell in nb.cells if cell.cell_type == "code")


def find_title(nb: NotebookNode) -> str:
    """The first title in the notebook's prose, or an empty string."""
    prose = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    found = re.search(r"^# (.+)$", prose, re.MULTILINE)
    return found[1].strip() if found else ""


def find_heads(nb: NotebookNode) -> list[tuple[int, int]]:
    """Every (layer, head) that the notebook's code names: its pages should hold them."""
    code = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "code")
    named = ((int(layer), int(head)) for layer, head in NAMED_HEAD.findall(code))
    return list(dict.fromkeys(named))


def run(nb: NotebookNode, folder: Path) -> None:
    """Run all cells, and replace each displayed stepper with one that needs no kernel."""
    nb.cells.append(v4.new_code_cell(COLLECT.format(find_heads(nb))))
    NotebookClient(
        nb,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=SECONDS,
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        coalesce_streams=True,
    ).execute()
    steppers = nb.cells.pop().outputs[0].data["application/json"]
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            view = output.get("data", {}).pop(WIDGET_VIEW, {})
            if view.get("model_id") in steppers:
                output.data = {"text/html": steppers[view["model_id"]]}


class Steppers(dict):
    """HTML by model id, sent from the kernel as JSON data rather than as text to parse."""

    def _repr_mimebundle_(self, **_) -> dict:
        return {"application/json": {**self}}

    def __repr__(self) -> str:
        return f"{len(self)} steppers"


def embed_steppers(named=()) -> Steppers:
    """The HTML of each stepper in this kernel, by the model id that its cell's output names.

    A page first holds the (layer, head) pairs that are `named`, if the stepper has them.
    """
    steppers = [
        each for each in live._instances.values() if isinstance(each, Stepper | ServingStepper)
    ]
    pages = {}
    for each in steppers:
        wanted = [(layer, head) for layer, head in named if head < each.heads.get(layer, 0)]
        pages[each.model_id] = page.embed(each, wanted)
    return Steppers(pages)
