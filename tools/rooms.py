"""Which folders of kvviz import which others: python -m tools.rooms prints the arrows.

Every import counts, even inside a function. All folders may import the top-level modules (count,
models, forge, ...), which import nothing from the folders.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "kvviz"
TOP = "kvviz"  # what the picture calls the top-level modules


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Each module's file by its dotted name, such as `kvviz.drawing.fonts` or `kvviz.drawing`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(package: Path = PACKAGE) -> dict[str, set[str]]:
    """The modules of kvviz that each module imports, anywhere in it."""
    files = modules(package)
    return {
        name: {known for named in _named(path.read_text()) if (known := _known(named, files))}
        - {name}
        for name, path in files.items()
    }


def _named(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute: from kvviz.recording.step import Step"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _known(name: str, files) -> str:
    """The module that holds a name such as `kvviz.count.in_units`; empty if it isn't in kvviz."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def folder(module: str) -> str:
    """A module's folder: `drawing` for `kvviz.drawing.fonts`, and `TOP` for a top-level module."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else TOP


def arrows(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """The folders that each folder imports."""
    between = {folder(module): set() for module in found}
    for module, others in found.items():
        between[folder(module)] |= {folder(other) for other in others} - {folder(module)}
    return between


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Names that form a circle, the first also at the end; an empty list if there is no circle."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if found := walk(other, [*way, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := walk(name, []))), [])


def height(graph: dict[str, set[str]], name: str) -> int:
    """The longest chain of imports down from `name`; the graph must not have a circle."""
    return max((1 + height(graph, other) for other in graph[name]), default=0)


def picture() -> str:
    """A line for each folder, the highest first, with an arrow to what it imports."""
    between = arrows(imports())
    highest = sorted(between, key=lambda name: (-height(between, name), name))
    lines = [
        f"{name:<10} -> {', '.join(n for n in highest if n in between[name])}" for name in highest
    ]
    return "\n".join(
        line if between[name] else name for name, line in zip(highest, lines, strict=True)
    )


if __name__ == "__main__":
    print(picture())
