"""List what is wrong with a committed notebook.

python -m tools.hygiene [PATH ...]
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from nbformat import NotebookNode

from tools.notebooks import WIDGET_VIEW, canonical, notebooks, read, text_of

IGNORED = "nbval-ignore-output"  # tags a cell whose text depends on the machine
BUILT = "the-thing-being-built"  # tags a cell that may be longer than others
FORBIDDEN_TAGS = {"nbval-skip", "raises-exception", "nbval-raises-exception"}

MAX_BYTES = 1 << 20
MAX_PROSE_WORDS, MAX_CODE_LINES = 110, 18
BUDGET = {"cells": 30, "words": 900, "lines of code": 110}
LARGE_BUDGET = {"cells": 40, "words": 1200, "lines of code": 170}
LARGE = ("04", "06", "12", "13", "14")

NEVER_IN_TEXT = {
    "an absolute path": r"(?:^|[\s'\"`(=])(?:/[\w.@+-]+){2,}|\b[A-Z]:\\\w|file://",
    "an object's address": r"\b0x[0-9a-fA-F]{6,}",
    "a process number": r"(?i)\bpid\b\W{0,3}\d+",
    "a date or a clock time": r"\b\d{1,2}:\d{2}:\d{2}\b|\b20\d\d-\d\d-\d\d\b",
    "a warning": r"\b\w*Warning\b",
}
DURATION = r"\d\s?(?:ns|µs|μs|us|ms|sec|secs|seconds)\b|\d\.\d+\s?s\b"


def check(path: Path) -> list[str]:
    """The faults of a committed notebook, each with its cell; an empty list if it has no faults."""
    try:
        nb = read(path)
    except Exception as error:  # anything wrong with the file is a fault to report
        return [f"not a valid notebook: {error}"]
    faults = []
    if path.stat().st_size > MAX_BYTES:
        faults.append(f"{path.stat().st_size:,} bytes, over {MAX_BYTES:,}")
    for rule in (_metadata, _order, _budget, _answers):
        faults += rule(nb, path)
    for number, cell in enumerate(nb.cells):
        rules = CODE_RULES if cell.cell_type == "code" else PROSE_RULES
        faults += [f"cell {number}: {fault}" for rule in rules for fault in rule(cell)]
    if path.read_text(encoding="utf-8") != text_of(canonical(nb)):
        faults.append("not in canonical form: run `make refresh`")
    return faults


def _metadata(nb: NotebookNode, path: Path) -> Iterator[str]:
    kernel = nb.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"kernel {kernel!r}, not 'python3'"
    if "widgets" in nb.metadata:
        yield "widget state in the metadata"


def _order(nb: NotebookNode, path: Path) -> Iterator[str]:
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    if counts != list(range(1, len(code) + 1)):
        yield f"not run top to bottom in a fresh kernel: counts are {counts}"
    if not any(cell.outputs for cell in code):
        yield "no output at all: outputs are committed"


def _budget(nb: NotebookNode, path: Path) -> Iterator[str]:
    spent = {
        "cells": len(nb.cells),
        "words": sum(_words(cell) for cell in nb.cells if cell.cell_type == "markdown"),
        "lines of code": sum(_lines(cell) for cell in nb.cells if cell.cell_type == "code"),
    }
    budget = LARGE_BUDGET if path.name.startswith(LARGE) else BUDGET
    for what, most in budget.items():
        if spent[what] > most:
            yield f"{spent[what]} {what}, at most {most}"


def _answers(nb: NotebookNode, path: Path) -> Iterator[str]:
    """A prediction's answer is folded: the output of a cell that follows the question."""
    open_question = None
    for number, cell in enumerate([*nb.cells, None]):
        is_question = cell is not None and "**Predict" in cell.source
        if (is_question or cell is None) and open_question is not None:
            yield f"cell {open_question}: no output after this prediction is folded"
        if cell is None:
            return
        folded = cell.metadata.get("jupyter", {}).get("outputs_hidden", False)
        if is_question:
            open_question = number
        elif folded and not any("**Predict" in c.source for c in nb.cells[:number]):
            yield f"cell {number}: its output is folded, but nothing was asked"
        elif folded:
            open_question = None


def _words(cell: NotebookNode) -> int:
    shown = re.sub(r"<[^>]*>|\]\([^)]*\)", " ", cell.source)
    return sum(any(c.isalnum() for c in word) for word in shown.split())


def _lines(cell: NotebookNode) -> int:
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def _tags(cell: NotebookNode) -> list[str]:
    return cell.metadata.get("tags", [])


def _long_prose(cell: NotebookNode) -> Iterator[str]:
    if _words(cell) > MAX_PROSE_WORDS:
        yield f"{_words(cell)} words of prose, at most {MAX_PROSE_WORDS}"


def _prose_text(cell: NotebookNode) -> Iterator[str]:
    for name in ("an absolute path", "an object's address"):
        if found := re.search(NEVER_IN_TEXT[name], cell.source, re.MULTILINE):
            yield f"{name} in the source: {found[0].strip()!r}"


def _image_without_alt(cell: NotebookNode) -> Iterator[str]:
    markdown = re.search(r"!\[\s*\]\(", cell.source)
    if markdown or any("alt=" not in tag for tag in re.findall(r"<img\b[^>]*>", cell.source)):
        yield "an image without alt text"


def _long_code(cell: NotebookNode) -> Iterator[str]:
    if _lines(cell) > MAX_CODE_LINES and BUILT not in _tags(cell):
        yield f"{_lines(cell)} lines of code, at most {MAX_CODE_LINES} unless tagged {BUILT!r}"


def _markers(cell: NotebookNode) -> Iterator[str]:
    for tag in FORBIDDEN_TAGS.intersection(_tags(cell)):
        yield f"tag {tag!r} would hide a failure"
    if re.search(r"^\s*#+\s*(NBVAL|PYTEST)_\w+", cell.source, re.MULTILINE):
        yield f"a test marker in the source: use the tag {IGNORED!r}"


def _missing_output(cell: NotebookNode) -> Iterator[str]:
    try:
        shows = _shows_something(ast.parse(cell.source).body)
    except SyntaxError:
        yield "not plain Python (no magics, no shell lines)"
        return
    if not cell.source.strip():
        yield "empty"
    if cell.outputs:
        return
    if shows and not cell.source.rstrip().endswith(";"):
        yield "shows something when run, but no output is stored"
    elif IGNORED in _tags(cell):
        yield f"tagged {IGNORED!r}, but no output is stored"


def _shows_something(body: list[ast.stmt]) -> bool:
    """Whether it's certain to show something; of all calls, only print and display are."""
    for statement in body:
        if isinstance(statement, ast.With | ast.For) and _calls_print(statement.body):
            return True
    last = body[-1] if body else None
    return _calls_print(body) or (
        isinstance(last, ast.Expr) and not isinstance(last.value, ast.Call | ast.Await)
    )


def _calls_print(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and getattr(s.value.func, "id", None) in ("print", "display")
        for s in body
    )


def _output_kind(cell: NotebookNode) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"an error: {output.ename}"
        if output.get("name") == "stderr":
            yield f"stderr: {output.text.strip()[:60]!r}"
        data = output.get("data", {})
        if WIDGET_VIEW in data:
            yield "a widget's view, whose id is random"
        if "image/png" in data and not re.search(r'\balt="[^"]', data.get("text/html", "")):
            yield "a picture without alt text: show it as a Picture"


def _output_text(cell: NotebookNode) -> Iterator[str]:
    text = "\n".join(_texts(cell.outputs))
    never = dict(NEVER_IN_TEXT)
    if IGNORED not in _tags(cell):
        never[f"a measured time (tag it {IGNORED!r})"] = DURATION
    for name, pattern in never.items():
        if found := re.search(pattern, text, re.MULTILINE):
            yield f"{name} in the output: {found[0].strip()!r}"


def _texts(outputs: list[NotebookNode]) -> Iterator[str]:
    for output in outputs:
        yield output.get("text", "")
        for mime, value in output.get("data", {}).items():
            if mime.startswith("text/"):
                yield re.sub(r"base64,[A-Za-z0-9+/=]+", "", value)


def _breaking_code(cell: NotebookNode) -> Iterator[str]:
    """A token such as ` at` is one word to a reader, so no line may break after its space."""
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", cell.source):
        if code.startswith(" "):
            yield f"`{code}` can break after its space: write it with a no-break space (U+00A0)"


Rule = Callable[[NotebookNode], Iterator[str]]
PROSE_RULES: tuple[Rule, ...] = (_long_prose, _prose_text, _image_without_alt, _breaking_code)
CODE_RULES: tuple[Rule, ...] = (
    _long_code,
    _markers,
    _prose_text,
    _missing_output,
    _output_kind,
    _output_text,
)


def compared(nb: NotebookNode) -> tuple[int, int]:
    """How many cells have output, and how many of these the tests compare."""
    shown = [cell for cell in nb.cells if cell.cell_type == "code" and cell.outputs]
    return len(shown), sum(IGNORED not in _tags(cell) for cell in shown)


def main(names: list[str]) -> int:
    """Print each notebook's faults; return how many notebooks have any."""
    paths = [Path(name) for name in names] or notebooks()
    faulty = 0
    for path in paths:
        faults = check(path)
        faulty += bool(faults)
        for fault in faults:
            print(f"{path.name}: {fault}")
    print(f"{len(paths)} notebooks, {faulty} with faults")
    return faulty


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
