"""The pictures of a page: equal ones are kept once, and similar ones as what differs.

Two heads of one step share their labels and their legend, so a second head takes 1 kB instead of
18. `page.js` lays the difference over the first picture again.
"""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image


class Album:
    """Lossless WebP pictures in base64, in the order in which they were added."""

    def __init__(self):
        self._numbers: dict[str, int] = {}
        self._first: dict[object, tuple[np.ndarray, int]] = {}

    @property
    def pictures(self) -> list[str]:
        return list(self._numbers)

    @property
    def size(self) -> int:
        """Characters of all pictures together."""
        return sum(map(len, self._numbers))

    def add(self, png: bytes, like) -> list[int]:
        """Keep a picture; returns the numbers of those that, on top of each other, make it.

        Args:
            like: pictures added with the same key look alike.
        """
        image = Image.open(io.BytesIO(png)).convert("RGBA")
        pixels = np.asarray(image).view(np.uint32)[..., 0]  # a pixel's four bytes as one number
        first, number = self._first.get(like, (None, None))
        if first is None or first.shape != pixels.shape:
            self._first[like] = pixels, (number := self._keep(image.convert("RGB")))
            return [number]
        differs = pixels != first
        if not differs.any():
            return [number]
        others = np.where(differs, pixels, np.uint32(0))  # transparent where they're equal
        return [number, self._keep(Image.fromarray(others[..., None].view(np.uint8)))]

    def _keep(self, image: Image.Image) -> int:
        file = io.BytesIO()
        image.save(file, "WEBP", lossless=True, method=3, quality=50)
        text = base64.b64encode(file.getvalue()).decode()
        return self._numbers.setdefault(text, len(self._numbers))
