"""Print constraints.txt: the exact version of every package that our dependencies install.

python -m tools.pins > constraints.txt
"""

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Written by `python -m tools.pins` from a tested environment. Do not edit by hand."


def requirements(groups: tuple[str, ...] = ()) -> list[Requirement]:
    """What pyproject.toml requires, including the optional groups that are named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for group in groups:
        lines += project["optional-dependencies"][group]
    return [Requirement(line) for line in lines]


def closure(wanted: list[Requirement]) -> dict[str, str]:
    """Name -> version installed here, for these packages and everything they require."""
    pins, todo = {}, [(r.name, frozenset(r.extras)) for r in wanted]
    seen = set(todo)
    while todo:
        name, extras = todo.pop()
        found = distribution(name)
        # Without a local label: the "+cpu" of a wheel names a build, not a release.
        pins[canonicalize_name(name)] = Version(found.version).public
        for line in found.requires or []:
            r = Requirement(line)
            applies = r.marker is None or any(
                r.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            )
            key = (r.name, frozenset(r.extras))
            if applies and key not in seen:
                seen.add(key)
                todo.append(key)
    return dict(sorted(pins.items()))


if __name__ == "__main__":
    print(HEADER)
    for name, version in closure(requirements(("test",))).items():
        print(f"{name}=={version}")
