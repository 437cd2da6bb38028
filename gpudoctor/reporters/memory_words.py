"""The words on what holds a GPU's memory, for every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.diagnosis import AllocatorReplay, DeviceMemory, Memory, MemoryShare
from gpudoctor.reporters.wording import one_line, place
from gpudoctor.units import format_bytes, format_share, plural

TITLE = "What holds the memory"
MOST = 8
"""Lines shown of each kind: the tail has hundreds."""

_LONG, _KEPT = 40, 2
"""Characters of a path that are shown as they are, and parts that are kept of a longer one."""

_OFF = 0.1
"""Share by which the replayed history may miss the reserved memory: fragments from before it are not replayed."""

_LITTLE = 0.005
"""Share of the reserved memory below which free memory in kept segments is not worth a line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line: who, where, how much, its share, and what follows; texts may be empty."""

    name: str
    where: str
    amount: str
    share: str
    note: str = ""
    part: float = 0.0


def device_words(device: DeviceMemory, several: bool) -> str:
    """`13.2 GiB reserved · 1.28 GiB allocated · 11.0 GiB in free segments · …`."""
    words = [
        f"{format_bytes(device.reserved_bytes)} reserved",
        f"{format_bytes(device.allocated_bytes)} allocated",
    ]
    if device.cached_bytes:
        words.append(f"{format_bytes(device.cached_bytes)} cached in free segments")
    if device.inactive_split_bytes:
        words.append(f"{format_bytes(device.inactive_split_bytes)} free in segments in use")
    words.append(f"largest free block {format_bytes(device.largest_free_bytes)}")
    if device.capacity_bytes:
        words.append(f"device {format_bytes(device.capacity_bytes)}")
    return (f"GPU {device.device}: " if several else "") + " · ".join(words)


def peak_title(memory: Memory) -> str:
    """What the rows of `peak` are of."""
    return "At the peak" if memory.history else "When the snapshot was taken (no history was recorded)"


def by_category(memory: Memory, device: int) -> tuple[Row, ...]:
    """The peak by category, largest first."""
    rows = [share for share in memory.peak if share.device == device]
    total = sum(share.bytes for share in rows) or 1
    sums: Counter[str] = Counter()
    for share in rows:
        sums[share.category or "other"] += share.bytes
    return tuple(
        Row(name, "", format_bytes(held), format_share(held / total), _MEANING.get(name, ""), held / total)
        for name, held in sums.most_common()
        if held
    )


_MEANING = {"other": "from before the recording, or of unknown use"}


def peak_rows(memory: Memory, device: int) -> tuple[Row, ...]:
    """The lines that held most at the peak."""
    rows = [share for share in memory.peak if share.device == device]
    most = max((share.bytes for share in rows), default=0) + sum(share.bytes for share in rows[1:])
    made = [
        Row(
            share.category or "other",
            _where(share),
            format_bytes(share.bytes),
            format_share(share.share),
            _without(share, most),
            share.share,
        )
        for share in rows[:MOST]
    ]
    rest = rows[MOST:]
    if rest:
        held = sum(share.bytes for share in rest)
        part = sum(share.share for share in rest)
        made.append(Row(plural(len(rest), "smaller line"), "", format_bytes(held), format_share(part), "", part))
    return tuple(made)


def _where(share: MemoryShare) -> str:
    if share.where is None:
        return "no line known"
    function = f" {share.where.function}" if share.where.function else ""
    return one_line(f"{_short(place(share.where))}{function}")


def _short(path: str) -> str:
    """The end of a long path: its last folder and the file tell lines apart, and JSON has the whole."""
    parts = path.split("/")
    return path if len(path) <= _LONG or len(parts) < _KEPT + 1 else "…/" + "/".join(parts[-_KEPT:])


def _without(share: MemoryShare, peak: int) -> str:
    if share.without_bytes is None or share.without_bytes >= peak:
        return ""
    return f"→ {format_bytes(share.without_bytes)}"


def kept_rows(memory: Memory, device: int) -> tuple[Row, ...]:
    """The lines whose allocations keep segments that are mostly free."""
    rows = [share for share in memory.kept if share.device == device and share.share >= _LITTLE]
    return tuple(
        Row(
            share.category or "other",
            _where(share),
            format_bytes(share.free_bytes or 0),
            format_share(share.share),
            f"free in {plural(share.count, 'segment')} of which it holds {format_bytes(share.bytes)}",
            share.share,
        )
        for share in rows[:MOST]
    )


def replay_rows(replays: Sequence[AllocatorReplay], device: DeviceMemory) -> tuple[Row, ...]:
    """What other settings would reserve, beside the recorded ones."""
    mine = [replay for replay in replays if replay.device == device.device]
    recorded = next((replay for replay in mine if not replay.setting), None)
    if recorded is None or len(mine) < 2 or not explains(recorded, device):
        return ()
    return tuple(_replayed(replay, recorded) for replay in mine)


def explains(recorded: AllocatorReplay, device: DeviceMemory) -> bool:
    """Whether the history gives what is reserved; where not, what came before it matters, and nothing is said."""
    return abs(recorded.peak_reserved_bytes - device.reserved_bytes) <= _OFF * device.reserved_bytes


def replay_note(replays: Sequence[AllocatorReplay], device: DeviceMemory) -> str:
    """Why other settings are not shown; empty where they are."""
    recorded = next((one for one in replays if one.device == device.device and not one.setting), None)
    if recorded is None or explains(recorded, device):
        return ""
    given, held = format_bytes(recorded.peak_reserved_bytes), format_bytes(device.reserved_bytes)
    return (
        f"Other allocator settings are not compared: the recorded history gives {given} of the {held} that are "
        "reserved, so what came before it matters."
    )


def _replayed(replay: AllocatorReplay, recorded: AllocatorReplay) -> Row:
    name = replay.setting or "as recorded"
    saved = recorded.peak_reserved_bytes - replay.peak_reserved_bytes
    notes = [f"{format_bytes(abs(saved))} {'less' if saved > 0 else 'more'}"] if saved else []
    if replay.retries:
        notes.append(plural(replay.retries, "emptied cache"))
    if replay.ooms:
        notes.append(plural(replay.ooms, "request would fail", "requests would fail"))
    if replay is not recorded and not notes:
        notes.append("no difference")
    share = replay.peak_reserved_bytes / max(1, recorded.peak_reserved_bytes)
    return Row(
        one_line(name), "", format_bytes(replay.peak_reserved_bytes), format_share(share), ", ".join(notes), share
    )


def advice(memory: Memory, device: DeviceMemory) -> str:
    """What the picture means, and what helps; one or two sentences."""
    peak, reserved = device.peak_bytes, device.reserved_bytes
    if peak is None or not reserved:
        return ""
    if peak >= 0.9 * reserved:
        said = (
            f"This is no fragmentation: tensors took {format_share(min(1.0, peak / reserved))} of it at the peak, and "
            "the allocator keeps what it once had. Only a lower peak lowers it"
        )
    else:
        over = reserved - peak
        said = (
            f"{format_bytes(over)} more is reserved than tensors ever took in the recording: rounding, split blocks, "
            "and what was needed before"
        )
    largest = next((row for row in by_category(memory, device.device)), None)
    if largest is None:
        return f"{said}."
    return f"{said}. {_REMEDY.get(largest.name, '')}".rstrip()


_REMEDY = {
    "activations": (
        "Activations are the largest part: checkpoint the blocks that own the lines below "
        "(`torch.utils.checkpoint`), run them in bfloat16 autocast, use fused operators "
        "(`F.scaled_dot_product_attention`), or take a smaller batch."
    ),
    "optimizer state": (
        "Optimizer state is the largest part: an 8-bit or factored optimizer, or one that is sharded over the ranks, "
        "makes it smaller."
    ),
    "gradients": "Gradients are the largest part: `zero_grad(set_to_none=True)` before the forward drops them.",
    "temporaries": "Temporaries are the largest part: work in smaller pieces at the lines below.",
}
