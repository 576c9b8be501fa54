"""Write the course as web pages that need no kernel or network: python -m tools.site [FOLDER]"""

import base64
import html
import os
import re
import sys
from pathlib import Path

from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from kvviz import files
from kvviz.widgets import page, site
from tools.notebooks import ROOT, notebooks
from tools.readme import STILL

COURSE = ROOT / "notebooks"
FAILURES = (ValueError, CellExecutionError, CellTimeoutError, DeadKernelError)


def build(folder: Path, paths: list[Path]) -> tuple[list[Path], dict[Path, str]]:
    """Write a page for each notebook, and an index of them.

    Returns:
        The pages' paths, and for each notebook that gave no page, why.
    """
    made, failed = {}, {}
    for path in reversed(paths):  # solutions first, so that no page links to one that failed
        where = path.parent.relative_to(COURSE)
        links = {"All notebooks": "../" * len(where.parts) + "index.html"}
        if solution(path) in made:
            links["Solution"] = solution(path).relative_to(COURSE).with_suffix(".html").as_posix()
        try:
            made[path] = site.export_page(path, folder / where, links=links)
        except FAILURES as error:
            failed[path] = explain(error)
    known = [path for path in paths if path in made]
    return [*made.values(), files.write_whole(folder / "index.html", index(known))], failed


def explain(error: Exception) -> str:
    """Why a notebook gave no page, in one line: what its cell raised, without the traceback."""
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {error.evalue}"
    return str(error).strip().splitlines()[-1]


def solution(path: Path) -> Path:
    """Where a notebook's solution is, if it has one."""
    return COURSE / "solutions" / path.name if path.parent == COURSE else Path()


def index(paths: list[Path]) -> str:
    """The page that lists the course, with the README's title, first sentence and picture."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    title, sentence = (
        re.search(what, readme, re.M)[1] for what in (r"^# (.+)", r"^([A-Z][^.]+\.)")
    )
    alt = html.unescape(re.search(r'alt="([^"]+)"', readme)[1])
    png = base64.b64encode(STILL.read_bytes()).decode()
    items = "\n".join(item(path, paths) for path in paths if path.parent == COURSE)
    body = (
        f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(sentence)}</p>\n"
        f'<img src="data:image/png;base64,{png}" alt="{html.escape(alt)}">\n'
        f'<h2>The notebooks</h2>\n<ul class="course">\n{items}\n</ul>'
    )
    return page.compose(title, body, {})


def item(path: Path, paths: list[Path]) -> str:
    """A notebook's title and minutes, with its claim (in italics) or else its question."""
    nb = site.read(path)
    first = nb.cells[0].source
    claim = re.search(r"^\*(?!\*)(.+)\*$", first, re.M)
    claim = claim or re.search(r"\*\*Question\.\*\* (.+)", first)
    minutes = re.search(r"\d+ minutes", first)
    name = f"{path.stem[:2]} {site.find_title(nb)}"
    parts = [f'<a href="{path.stem}.html">{html.escape(name)}</a>', minutes[0] if minutes else ""]
    if solution(path) in paths:
        parts.append(f'<a href="solutions/{path.stem}.html">solution</a>')
    line = f"<br>{html.escape(claim[1])}" if claim else ""
    return f"<li>{', '.join(filter(None, parts))}{line}</li>"


def main(names: list[str]) -> int:
    """Write the site; return how many notebooks gave no page."""
    os.environ["KVVIZ_PROGRESS"] = "0"  # a progress bar isn't part of a page
    folder = Path(names[0]) if names else ROOT / "build" / "site"
    made, failed = build(folder, notebooks())
    print(f"{len(made)} pages, {sum(p.stat().st_size for p in made) / 1e6:.1f} MB: {made[-1]}")
    for path, why in failed.items():
        print(f"no page for {path.relative_to(ROOT)}: {why}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
