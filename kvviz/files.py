"""Write files completely or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kvviz.arguments import describe


def write_whole(path, content: bytes | str) -> Path:
    """Write `content` to `path`; until the new file is complete, the old one stays.

    Raises:
        FileNotFoundError: the folder doesn't exist.
        OSError: the file can't be written; nothing is left behind.

    >>> write_whole("notes.txt", "one row a step").read_text()
    'one row a step'
    """
    path = check_folder(path)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with open(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(part, 0o644)  # a temporary file is readable by its owner only
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    return path


def to_path(path, ending: str = "", what: str = "path") -> Path:
    """`path` as a Path, if it is a file's name, and one with this ending.

    Raises:
        TypeError: it is neither text nor a path.
        ValueError: it has another ending, or characters that no file's name can have.

    >>> to_path("mine.gif", ".gif").suffix
    '.gif'
    """
    if not isinstance(path, str | os.PathLike):
        kind = "folder" if what == "folder" else "file"
        raise TypeError(f"{what}: expected the name of a {kind}, but got {describe(path)}")
    path = Path(os.fsdecode(path))
    try:
        usable = "\0" not in os.fsencode(path).decode("latin-1")
    except UnicodeEncodeError:  # half of a surrogate pair
        usable = False
    if not usable:
        raise ValueError(f"path: expected the name of a file, but got {str(path)!r:.80}")
    if ending and path.suffix.lower() != ending:
        raise ValueError(f"path: expected a name that ends in {ending}, but got {path.name!r}")
    return path


def check_file(path) -> Path:
    """`path`, if it's a file that can be read to its end.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: it's a folder.
        OSError: it's neither, such as a pipe.

    >>> check_file("no-such.npz")
    Traceback (most recent call last):
    FileNotFoundError: no-such.npz: expected a file, but there's none of this name
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file, but there's none of this name")
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file, but this is a folder")
    if not path.is_file():
        raise OSError(f"{path}: expected a file, but this is a device or a pipe")
    return path


def check_folder(path) -> Path:
    """`path`, if the folder it will be written into exists.

    Raises:
        FileNotFoundError: the folder doesn't exist.

    >>> check_folder("notes.txt").name
    'notes.txt'
    """
    path = Path(path)
    if not path.name or path.is_dir():
        raise IsADirectoryError(f"{path}: expected the name of a file, but this is a folder")
    if not (folder := path.parent).is_dir():
        raise FileNotFoundError(f"{path}: expected a folder to write into, but {folder} isn't one")
    return path
