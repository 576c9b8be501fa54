"""Write what a class gets, without outputs and solutions: python -m tools.handout

It goes to build/handout, and into build/handout.zip.
"""

import io
import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from kvviz import files
from tools.notebooks import ROOT, canonical, notebooks, read, text_of

NAME = "kvviz"  # the folder that the zip unpacks to
SETUP = ("Makefile", "pyproject.toml", "constraints.txt", "environment.yml", "LICENSE")
LAB = ("tools/lab_config.py",)  # what `make lab` starts
NEEDED = ("## If the download is too large", "## With conda, on Binder, or without make")


def blank(path: Path) -> str:
    """A notebook as text, without outputs; its cells, and answers that fold open, stay."""
    nb = canonical(read(path))
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []
    return text_of(nb)


def readme(text: str) -> str:
    """The README's title, and what it says about setting up.

    Raises:
        ValueError: the README has lost one of these parts.
    """
    wanted = [r"^# .+", r"^make lab .+", r"^You need Python .+?(?=\n## )"]
    wanted += [rf"^{re.escape(head)}\n.+?(?=\n## |\Z)" for head in NEEDED]
    flags = (re.M, re.M, re.M | re.S, re.M | re.S, re.M | re.S)
    found = [m[0].strip() for m in map(re.search, wanted, [text] * 5, flags) if m]
    if len(found) < len(wanted):
        raise ValueError(f"README.md: expected its set-up, but found {len(found)} of 5 parts")
    found[1] = f"```bash\n{found[1]}\n```"
    return "\n\n".join(found) + "\n"


def contents() -> dict[str, bytes]:
    """Every file of the handout by its path in it: the notebooks, and what they need to run."""
    package = (path for path in (ROOT / "kvviz").rglob("*") if path.is_file())
    copied = [path for path in package if "__pycache__" not in path.parts]
    copied += [ROOT / name for name in SETUP + LAB]
    made = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in copied}
    lessons = [path for path in notebooks() if path.parent == ROOT / "notebooks"]
    texts = {f"notebooks/{path.name}": blank(path) for path in lessons}
    texts["README.md"] = readme((ROOT / "README.md").read_text(encoding="utf-8"))
    return made | {name: text.encode() for name, text in texts.items()}


def build(folder: Path) -> Path:
    """Write the handout to `folder`, and a zip of it beside; an older handout is replaced.

    Both are made completely before either takes the older one's place. Returns the zip's path.
    """
    made = contents()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        for name, content in made.items():
            path = Path(work, NAME, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        zipped = files.write_whole(folder.with_suffix(".zip"), archive(made))
        if folder.exists():
            os.replace(folder, Path(work, "old"))
        os.replace(Path(work, NAME), folder)
    return zipped


def archive(made: dict[str, bytes]) -> bytes:
    """A zip of these files in one folder; the same files make the same zip."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(made):
            entry = zipfile.ZipInfo(f"{NAME}/{name}")
            entry.external_attr = 0o644 << 16  # readable once it's unpacked
            packed.writestr(entry, made[name], zipfile.ZIP_DEFLATED)
    return memory.getvalue()


def main() -> int:
    folder = ROOT / "build" / "handout"
    zipped = build(folder)
    n = len(list((folder / "notebooks").glob("*.ipynb")))
    size = zipped.stat().st_size / 1e6
    print(f"{n} notebooks in {folder.relative_to(ROOT)}; {zipped.relative_to(ROOT)}, {size:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
