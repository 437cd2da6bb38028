"""What Dynamo says of a graph break: the user's line, whose code broke, reason, explanation, hints, id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gpudoctor.userfiles import UserFiles

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in (.+)$', re.M)
_BREAK_ID = re.compile(r"/gb/(gb\d+)\.html", re.I)
_OPTIMIZER = re.compile(r"in file `[^`]*/torch/optim/[^`]*`")
RESUME = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
"""How Dynamo names what follows a graph break: the function, and the line at which it goes on."""

_PREAMBLES = ("Encountered graph break", "Failed to handle graph break gracefully")


def parse_graph_break(payload: str, files: UserFiles) -> dict[str, Any]:
    """What a graph-break record says: the user's line, whose code broke, reason, explanation, hints, id.

    The line is that of the innermost frame of the user's in the traceback: Dynamo's own first line can point into
    torch (a compiled optimizer, a hook).
    """
    said, _, trace = payload.partition("User code traceback:")
    trace = trace.partition("Traceback (most recent call last)")[0]
    frames = [(name, int(line), function) for name, line, function in _FRAME.findall(trace)]
    place: dict[str, Any] = {"file": None, "line": None, "function": None, "owner": "library"}
    for depth, (name, line, function) in enumerate(reversed(frames)):
        shown = files.name(name)
        if shown is not None:
            place |= {"file": shown, "line": line, "function": None if function == "<module>" else function}
            inner = [file for file, _, _ in frames[len(frames) - depth :]]
            place["owner"] = _owner(inner)
            break
    else:
        head = re.search(r"in user code at (.+):(\d+)", said)
        if head and (shown := files.name(head[1])) is not None:
            place |= {"file": shown, "line": int(head[2]), "owner": "user"}
    if _OPTIMIZER.search(said):
        place["owner"] = "torch.optim"  # a scheduler's wrapper around `step`, which is in no frame of the traceback
    found = _BREAK_ID.search(said)
    return (
        place
        | _reason(readable(said))
        | {"break_id": found[1].upper() if found else None, "skipped": "SKIP" in said[:400]}
    )


UNLOGGED = "not logged: this torch wrote no reason"


def implied(compilations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `graph_breaks` for a log that names none though Dynamo went on behind some: one a continuation.

    Args:
        compilations: rows of `compilations`.
    """
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in compilations:
        match = RESUME.match(row["function"] or "")
        if match:
            ids = {"compile_id": row["compile_id"], "frame": row["frame"]}
            place = {"file": row["file"], "line": int(match[2]), "function": root_function(row["function"])}
            said = {"owner": "user", "reason": UNLOGGED, "explanation": None, "hint": None, "break_id": None}
            found.setdefault((row["file"], row["function"]), ids | place | said | {"skipped": False})
    return list(found.values())


def root_function(name: str | None) -> str | None:
    """The function a continuation belongs to: `forward` for `torch_dynamo_resume_in_forward_at_20`."""
    while name is not None and (match := RESUME.match(name)):
        name = match[1]
    return name


_FRAME_VALUE = re.compile(r"\b[LG]\['(\w+)'\]")
_SUBMODULE = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def readable(text: str) -> str:
    """Dynamo's words in the user's: `self.inner` for `L['self']._modules['inner']`, and no addresses."""
    return _ADDRESS.sub("", _SUBMODULE.sub(r".\1", _FRAME_VALUE.sub(r"\1", text)))


def is_wrapper(file: str | None) -> bool:
    """Whether a frame is Dynamo's own, through which a wrapped module of torch's is compiled."""
    return (file or "").endswith("torch/_dynamo/external_utils.py")


def _owner(inner: list[str]) -> str:
    """Whose code broke, from the files of the frames below the user's line. Module calls only pass a call on."""
    own = [file for file in inner if "/torch/nn/modules/" not in file]
    if not own:
        return "user"
    if any("/torch/optim/" in file for file in own):
        return "torch.optim"
    return "torch" if any("/torch/" in file for file in own) else "library"


def _reason(said: str) -> dict[str, Any]:
    """Reason, explanation and hints, each without Dynamo's indentation and repetition."""
    body = said.partition("Graph Break Reason:")[2] or said
    body = re.sub(r"^\s*For more details about this graph break.*$", "", body, flags=re.M)
    parts = re.split(r"\n\s*(Explanation|Hint|Developer debug context):", body)
    lines = [line.strip() for line in parts[0].strip().splitlines() if line.strip()]
    while len(lines) > 1 and lines[0].startswith(_PREAMBLES):
        lines = lines[1:]
    texts: dict[str, list[str]] = {}
    for kind, text in zip(parts[1::2], parts[2::2], strict=True):
        said_once = text.partition("*** While handling this graph break")[0]
        texts.setdefault(kind, []).append(re.sub(r"\s+", " ", said_once).strip())
    explanation = " ".join(texts.get("Explanation", []))
    # Dynamo goes on with a listing of its graph, which repeats the user's line
    explanation = re.sub(r"\s*The branch condition involves.*", "", explanation)
    hints = [hint for hint in texts.get("Hint", []) if not hint.startswith("This graph break is fundamental")]
    return {
        "reason": lines[0].rstrip(":") if lines else None,
        "explanation": explanation or None,
        "hint": "\n".join(hints) or None,
    }
