"""A notebook as a web page on which its steppers step, with no kernel and no network."""

import re
from functools import cache
from pathlib import Path

import nbformat
from ipywidgets.widgets import widget as live
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from nbformat import NotebookNode, v4

from kvviz.widgets import page
from kvviz.widgets.stepper import Stepper

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# Run in the kernel, once all cells have run.
ASK = "import kvviz.widgets.site\nkvviz.widgets.site.tell()"
SECONDS = 600  # a cell may take
TO_NOTEBOOK = re.compile(r'href="((?!\w+:)[^"#]+)\.ipynb(#[^"]*)?"')


def export_page(notebook, folder, *, links=None) -> Path:
    """Write a notebook as one web page into `folder`, and return where.

    A notebook with a stepper is run anew, since frames need a kernel to draw them; of any other
    the stored outputs are shown. What links to a notebook links to its page.

    Args:
        links: {text: address} to stand above the title.

    Raises:
        ValueError: not a notebook.
        nbclient.exceptions.CellExecutionError: a cell failed.
        OSError: it cannot be read, or the page cannot be written; one that is there stays.
    """
    notebook, folder = Path(notebook), Path(folder)
    nb = read(notebook)
    if has_stepper(nb):
        _run(nb, notebook.parent)
    body, _ = _exporter().from_notebook_node(nb)
    body = TO_NOTEBOOK.sub(lambda link: f'href="{link[1]}.html{link[2] or ""}"', body)
    folder.mkdir(parents=True, exist_ok=True)
    title = heading(nb) or notebook.stem
    return page.write(folder / f"{notebook.stem}.html", page.whole(title, body, links or {}))


def read(notebook: Path) -> NotebookNode:
    """The notebook in a file; ValueError if it holds none."""
    try:
        nb = nbformat.read(notebook, as_version=4)
        nbformat.validate(nb)
    except (ValueError, nbformat.ValidationError, AttributeError, KeyError) as error:
        raise ValueError(f"{notebook}: expected a notebook: {str(error)[:200]}") from error
    return nb


@cache
def _exporter() -> HTMLExporter:
    return HTMLExporter(
        template_name="basic",  # the cells alone: no script and no style of anybody else's
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )


def has_stepper(nb: NotebookNode) -> bool:
    """Whether it must be run for its page."""
    return any("stepper(" in cell.source for cell in nb.cells if cell.cell_type == "code")


def heading(nb: NotebookNode) -> str:
    """The first title in its prose."""
    prose = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    found = re.search(r"^# (.+)$", prose, re.MULTILINE)
    return found[1].strip() if found else ""


def _run(nb: NotebookNode, folder: Path) -> None:
    """Run all cells; where a stepper was shown, put one that needs no kernel."""
    nb.cells.append(v4.new_code_cell(ASK))
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


class Told(dict):
    """What the kernel hands over: as JSON, and not printed, since printed text is searched."""

    def _repr_mimebundle_(self, **_) -> dict:
        return {"application/json": {**self}}

    def __repr__(self) -> str:
        return f"{len(self)} steppers"


def tell() -> Told:
    """The HTML of each stepper of this kernel, by the name that its cell's output has for it."""
    steppers = [each for each in live._instances.values() if isinstance(each, Stepper)]
    return Told({each.model_id: page.fragment(each) for each in steppers})
