"""Make a contact sheet: every picture of every committed notebook, on one page to look over.

python -m tools.pictures [where.png]
"""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path

from PIL import Image, ImageDraw

ROOT = Path(__file__).parents[1]
WIDTH, GAP, LINE = 2400, 24, 22  # pixels
GROUND, WORDS = "#3a3a40", "#ffffff"


def notebooks(root: Path) -> list[Path]:
    """The notebooks that git tracks, in order."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.ipynb"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return [root / name for name in sorted(filter(None, listed.stdout.split("\0")))]


def pictures(path: Path) -> list[tuple[str, Image.Image]]:
    """(notebook and cell, picture) of every image/png output of a notebook."""
    found = []
    for k, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        for output in cell.get("outputs", ()):
            data = output.get("data", {}).get("image/png")
            if data:
                image = Image.open(io.BytesIO(base64.b64decode("".join(data)))).convert("RGB")
                found.append((f"{path.stem} [{k}]", image))
    return found


def sheet(found: list[tuple[str, Image.Image]]) -> Image.Image:
    """All pictures in rows, each with its notebook and cell number above it."""
    x = y = GAP
    deepest, spots = 0, []
    for _, image in found:
        if x > GAP and x + image.width + GAP > WIDTH:
            x, y, deepest = GAP, y + deepest + LINE + GAP, 0
        spots.append((x, y))
        x, deepest = x + image.width + GAP, max(deepest, image.height)
    width = max([WIDTH, *(image.width + 2 * GAP for _, image in found)])
    page = Image.new("RGB", (width, y + deepest + LINE + GAP), GROUND)
    pen = ImageDraw.Draw(page)
    for (name, image), (left, top) in zip(found, spots, strict=True):
        pen.text((left, top), name, fill=WORDS, font_size=16)
        page.paste(image, (left, top + LINE))
    return page


def main() -> None:
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "pictures.png"
    paths = notebooks(ROOT)
    found = [each for path in paths for each in pictures(path)]
    if not found:
        sys.exit(f"no picture in {len(paths)} committed notebooks")
    where.parent.mkdir(parents=True, exist_ok=True)
    sheet(found).save(where)
    print(f"{len(found)} pictures of {len(paths)} notebooks: {where}")


if __name__ == "__main__":
    main()
