"""Check whether this machine has what the course needs, and say how to fix what's missing."""

from __future__ import annotations

import html
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

from packaging.requirements import Requirement

from kvviz.models import home, kept_folder

_INSTALL = "run `make lab`, or: pip install -c constraints.txt -e ."


class Need(NamedTuple):
    """Something the course needs, and how to fix it if it's missing."""

    is_met: bool
    name: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """What `check_setup` found, with a line for each need."""

    needs: tuple[Need, ...]

    @property
    def ready(self) -> bool:
        return all(need.is_met for need in self.needs)

    def __repr__(self):
        lines = [
            f"✓ {need.name}" if need.is_met else f"✗ {need.name}\n  To fix it: {need.fix}"
            for need in self.needs
        ]
        end = "Everything is here." if self.ready else "Fix the lines with ✗, then run this again."
        return "\n".join([*lines, end])

    def _repr_html_(self):
        return f"<pre>{html.escape(repr(self))}</pre>"


def check_setup() -> Report:
    """Look for Python, the packages, the course's model and disk space. Nothing is changed.

    >>> "Python >=3.11" in repr(kv.check_setup())
    True
    """
    packages = _packages()
    missing = [package for package in packages if not package.is_met]
    needs = [_python(), *(missing or [Need(True, "the packages it needs")]), _model()]
    if not needs[-1].is_met:
        needs.append(_disk())
    return Report(tuple(needs))


def _python() -> Need:
    versions = metadata.metadata("kvviz")["Requires-Python"]
    fix = "run make lab PYTHON=python3.12, or whichever of these versions is installed"
    return Need(sys.version_info >= (3, 11), f"Python {versions}", fix)


def _packages() -> list[Need]:
    required = [Requirement(text) for text in metadata.requires("kvviz") or ()]
    required = [r for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [_package(requirement) for requirement in sorted(required, key=lambda r: r.name)]


def _package(requirement: Requirement) -> Need:
    name = f"{requirement.name}{requirement.specifier}"
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Need(False, f"{name}: not installed", _INSTALL)
    if not requirement.specifier.contains(version, prereleases=True):
        return Need(False, f"{name}: version {version} is installed", _INSTALL)
    return Need(True, name)


def _model() -> Need:
    return Need(
        kept_folder() is not None,
        "the course's model, kept on this machine",
        "run kv.load_model() once with a network, or copy the folder that KVVIZ_HOME names",
    )


def _disk() -> Need:
    """Whether there's enough free disk space where the model would be kept."""
    existing = next(folder for folder in (home(), *home().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    fix = f"make room: only {free / 2**30:.1f} GiB are free"
    return Need(free >= 2 * 2**30, "2 GiB of disk space for the model", fix)
