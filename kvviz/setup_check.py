"""Whether this machine has what the course needs, and how to mend what it has not."""

from __future__ import annotations

import html
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

from kvviz.models import home, kept_folder

_INSTALL = "run `make lab`, or: pip install -c constraints.txt -e ."


@dataclass(frozen=True)
class Report:
    """What was looked at: (there, what it is, how to mend it) each."""

    found: tuple[tuple[bool, str, str], ...]

    @property
    def ready(self) -> bool:
        return all(there for there, _, _ in self.found)

    def __repr__(self):
        lines = [
            f"✓ {what}" if there else f"✗ {what}\n  To mend it: {mend}"
            for there, what, mend in self.found
        ]
        end = "Everything is here." if self.ready else "Mend the lines with ✗, then run again."
        return "\n".join([*lines, end])

    def _repr_html_(self):
        return f"<pre>{html.escape(repr(self))}</pre>"


def check_setup() -> Report:
    """Look at Python, the packages, the kept model and the disk; nothing is fetched or changed."""
    needed = [Requirement(text) for text in metadata.requires("kvviz") or ()]
    needed = [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    python = metadata.metadata("kvviz")["Requires-Python"]
    model, free = kept_folder(), _free_bytes()
    newest = "make lab PYTHON=python3.12, or whichever is installed"
    found = [(sys.version_info >= (3, 11), f"Python {python}", newest)]
    packages = [_package(requirement) for requirement in sorted(needed, key=lambda r: r.name)]
    missing = [package for package in packages if not package[0]]
    found += missing or [(True, "the packages it needs", "")]
    found.append(
        (
            model is not None,
            "the course's model, kept on this machine",
            "run kv.load_model() once with a network, or copy the folder that KVVIZ_HOME names",
        )
    )
    if model is None:
        enough = free >= 2 * 2**30
        found.append(
            (enough, "2 GiB of disk for it", f"{free / 2**30:.1f} GiB are free: make room")
        )
    return Report(tuple(found))


def _package(requirement):
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return False, f"{requirement.name}{requirement.specifier}: not installed", _INSTALL
    if not requirement.specifier.contains(version, prereleases=True):
        what = f"{requirement.name}{requirement.specifier}: version {version} is installed"
        return False, what, _INSTALL
    return True, f"{requirement.name}{requirement.specifier}", ""


def _free_bytes():
    """Free disk where the model would be kept."""
    there = next(folder for folder in (home(), *home().parents) if folder.exists())
    return shutil.disk_usage(there).free
