"""Which files are the user's own, how they are named in a recording, and copies of their text.

A file is the user's unless it belongs to the interpreter's library, to an installed package, or to gpudoctor.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType

from gpudoctor import notebooks

SOURCES_FILE = "sources.json"
NAMES_FILE = "names.json"
IMPORTED_FILE = "imported.json"
MAX_FILE_BYTES = 512 * 1024  # a longer file is generated or data; an excerpt of it would not help
MAX_TOTAL_BYTES = 8 * 1024 * 1024  # enough for hundreds of modules, small beside one trace


class UserFiles:
    """Decides once per file name whether it is the user's.

    Args:
        root: the user's working folder; names below it become relative to it.
        foreign: folders that are not the user's; None for those of the running interpreter.
        here: the files lie on this machine, so links are followed and a name without a file is nobody's.
    """

    def __init__(self, root: str, foreign: Sequence[str] | None = None, here: bool = True) -> None:
        self._here = here
        self._root = self._resolve(root)
        self._texts: dict[str, str] = {}
        self._kept: set[str] = set()
        self._kept_bytes = 0
        self.known: dict[str, str | None] = {}
        """Decisions so far, by file name as code objects have it."""
        self.foreign = tuple(foreign) if foreign is not None else interpreter_folders()
        """Folders that are not the user's, each with a trailing separator."""

    def _resolve(self, path: str) -> str:
        return os.path.realpath(path) if self._here else os.path.normpath(path)

    def name(self, filename: str) -> str | None:
        """The name used in tables for a user's file, or None for a file that is not the user's."""
        try:
            return self.known[filename]
        except KeyError:
            name = self.known[filename] = self._decide(filename)
            if name is not None:
                self._keep(filename, name)
            return name

    def _decide(self, filename: str) -> str | None:
        if self._here and (cell := notebooks.cell_name(filename)) is not None:
            return cell
        if not filename or filename.startswith("<"):
            return None
        path = self._resolve(os.path.join(self._root, filename))
        if path.startswith(self.foreign) or "site-packages" in path or "dist-packages" in path:
            return None
        if self._here and path not in self._kept and not os.path.isfile(path):
            return None
        inside = path.startswith(os.path.join(self._root, ""))
        return (os.path.relpath(path, self._root) if inside else path).replace(os.sep, "/")

    def remember(self, filename: str) -> None:
        """Keeps a file's text now: the script may change or delete its own file while it runs."""
        self.name(filename)

    def _keep(self, filename: str, name: str) -> None:
        """Reads a user's file when it is first met: later it may be another one."""
        if not self._here or name in self._texts:
            return
        if name.startswith(notebooks.PREFIX):
            self._texts[name] = notebooks.cell_text(filename)
            return
        if not filename.endswith((".py", ".pyw")):
            return
        path = self._resolve(os.path.join(self._root, filename))
        with contextlib.suppress(OSError):
            size = os.path.getsize(path)
            if size <= MAX_FILE_BYTES and self._kept_bytes + size <= MAX_TOTAL_BYTES:
                self._kept.add(path)
                self._kept_bytes += size
                self._texts[name] = Path(path).read_bytes().decode("utf-8", "replace")

    def frame(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame from `frame` outwards that runs the user's code."""
        while frame is not None and self.name(frame.f_code.co_filename) is None:
            frame = frame.f_back
        return frame

    def site(self, frame: FrameType | None) -> dict[str, object]:
        """`{file, line, function}` of the innermost user frame, empty when there is none."""
        found = self.frame(frame)
        if found is None:
            return {}
        return {
            "file": self.name(found.f_code.co_filename),
            "line": found.f_lineno,
            "function": function_name(found.f_code),
        }

    def save_names(self, folder: Path, prefixes: Sequence[str]) -> None:
        """Writes which user file a profile means by a name: torch drops the first search path that fits.

        Args:
            folder: where `names.json` goes.
            prefixes: the paths that torch drops, each with a trailing separator, in its order.
        """
        shown: dict[str, str] = {}
        for filename, name in self.known.copy().items():  # a thread, or a collection of garbage, may add names
            if name is not None:
                short = next((filename.removeprefix(p) for p in prefixes if filename.startswith(p)), filename)
                shown[short] = shown[filename] = name
        (folder / NAMES_FILE).write_text(json.dumps(shown), encoding="utf-8")

    def save_sources(self, folder: Path) -> None:
        """Writes the text of every imported user file, and of those met in evidence, as it was when first met."""
        for module in list(sys.modules.values()):
            if file := getattr(module, "__file__", None):
                self.name(str(file))
        (folder / SOURCES_FILE).write_text(json.dumps(self._texts), encoding="utf-8")
        (folder / IMPORTED_FILE).write_text(json.dumps(imported()), encoding="utf-8")


def interpreter_folders() -> tuple[str, ...]:
    """Folders of the running interpreter's library and packages, and of gpudoctor, each with a trailing separator."""
    paths = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {
        str(Path(__file__).resolve().parent),
        os.path.join(sys.base_prefix, "lib"),
        os.path.join(sys.prefix, "lib"),
    }
    return tuple(sorted(os.path.join(os.path.realpath(path), "") for path in paths))


def imported() -> dict[str, str]:
    """Files of the modules that were imported: all of the user's, of installed packages the outermost module."""
    library = tuple(os.path.join(os.path.realpath(sysconfig.get_paths()[key]), "") for key in ("stdlib", "platstdlib"))
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        installed = "site-packages" in file or "dist-packages" in file
        if (installed and "." in name) or (not installed and os.path.realpath(file).startswith(library)):
            continue
        found[name] = os.path.realpath(file)
    return found


def function_name(code: CodeType) -> str | None:
    """Qualified name of a function without `<locals>`; None at module level."""
    name = getattr(code, "co_qualname", code.co_name)
    return None if name == "<module>" else name.replace("<locals>.", "")
