"""Reads a pickle of plain data piece by piece; refuses every other one.

A pickle is a program. Only its instructions that make numbers, strings and containers are known here; those that import
a name or call something do not exist, so that a hostile file can run nothing. Dictionaries may be handed over as soon
as they are complete and replaced by what the receiver makes of them: a snapshot of millions of allocations is then
never a tree of Python objects.

The instructions are those of the standard library's `pickletools`, protocols 2 to 5, and the plain ones of 0 and 1.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from gpudoctor.errors import GpuDoctorError

Sink = Callable[[dict[Any, Any]], Any]
"""Takes a complete dictionary and gives what shall stand in its place: the same one, or what was made of it."""

_CALLS = {
    0x63: "GLOBAL",
    0x93: "STACK_GLOBAL",
    0x52: "REDUCE",
    0x62: "BUILD",
    0x69: "INST",
    0x6F: "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x50: "PERSID",
    0x51: "BINPERSID",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}
_REFERENCES = re.compile(rb"\]\x94\(((?:h.|j.{4})+)e", re.DOTALL)
"""A list of objects that all came before: nearly every call stack of a snapshot, whose frames are shared."""
MAX_INTEGER_BYTES = 16
"""Longer integers are refused: an address or a size takes 8 bytes, and decoding a long one takes quadratic time."""


class UnpicklingError(GpuDoctorError):
    """The bytes are no pickle of plain data."""


class UnsafePickleError(UnpicklingError):
    """The pickle wants something imported or called; nothing was."""


def load(data: bytes, sink: Sink | None = None) -> Any:
    """The object that a pickle holds.

    Args:
        data: the whole pickle.
        sink: sees each dictionary when it is complete, inner ones first.

    Raises:
        UnsafePickleError: it wants something imported or called.
        UnpicklingError: it is damaged, ends too soon, or is no pickle.
    """
    try:
        return _run(data, sink)
    except (IndexError, KeyError, struct.error):
        raise UnpicklingError("it ends too soon or is damaged") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnpicklingError(f"it is damaged ({error})") from None


def _run(data: bytes, sink: Sink | None) -> Any:  # noqa: PLR0912, PLR0915
    """The pickle machine: a stack, marks, and a memo; one flat loop, as a call an instruction triples its time."""
    stack: list[Any] = []
    marks: list[int] = []
    owners: list[int] = []  # for each mark, the memo's entry of what stands below it
    memo: list[Any] = []
    shared: dict[bytes, list[Any]] = {}
    homes: dict[int, int] = {}  # place in the memo by identity, of dictionaries up to `indexed`
    indexed = 0
    push, references, from_bytes = stack.append, _REFERENCES.match, int.from_bytes
    at = 0
    while True:
        code = data[at]
        at += 1
        if code == 0x68:  # BINGET
            push(memo[data[at]])
            at += 1
        elif code == 0x6A:  # LONG_BINGET
            push(memo[from_bytes(data[at : at + 4], "little")])
            at += 4
        elif code == 0x4B:  # BININT1
            push(data[at])
            at += 1
        elif code == 0x4D:  # BININT2
            push(data[at] | data[at + 1] << 8)
            at += 2
        elif code == 0x4A:  # BININT
            push(from_bytes(_exactly(data, at, 4), "little", signed=True))
            at += 4
        elif code == 0x8A:  # LONG1
            length = data[at]
            push(from_bytes(_exactly(data, at + 1, _plain_length(length)), "little", signed=True))
            at += 1 + length
        elif code == 0x94:  # MEMOIZE
            memo.append(stack[-1])
        elif code == 0x5D:  # EMPTY_LIST
            found = references(data, at - 1)
            if found:
                key = found.group(1)
                made = shared.get(key)
                if made is None:
                    made = shared[key] = _referred(key, memo)
                push(made)
                memo.append(made)
                at = found.end()
            else:
                push([])
        elif code == 0x7D:  # EMPTY_DICT
            push({})
        elif code == 0x28:  # MARK
            marks.append(len(stack))
            owners.append(len(memo) - 1)
        elif code in (0x75, 0x73):  # SETITEMS, SETITEM
            if code == 0x75:
                mark, owner = marks.pop(), owners.pop()
            else:
                mark, owner = len(stack) - 2, -1
            filled = stack[mark - 1]
            if tuple in map(type, stack[mark::2]):
                raise UnpicklingError("it has a tuple as a key")  # hashing a deep one overflows the stack of CPython
            filled.update(zip(stack[mark::2], stack[mark + 1 :: 2], strict=True))
            del stack[mark:]
            if sink is not None:
                made = sink(filled)
                if made is not filled:
                    stack[-1] = made
                    if owner < 0 or memo[owner] is not filled:
                        indexed = _index(memo, indexed, homes)
                        owner = homes.get(id(filled), -1)
                        if owner >= 0 and memo[owner] is not filled:
                            owner = -1
                    if owner >= 0:
                        memo[owner] = made
        elif code == 0x65:  # APPENDS
            mark = marks.pop()
            owners.pop()
            stack[mark - 1].extend(stack[mark:])
            del stack[mark:]
        elif code == 0x61:  # APPEND
            last = stack.pop()
            stack[-1].append(last)
        elif code == 0x8C:  # SHORT_BINUNICODE
            length = data[at]
            push(_exactly(data, at + 1, length).decode("utf-8", "surrogatepass"))
            at += 1 + length
        elif code == 0x58:  # BINUNICODE
            length = from_bytes(_exactly(data, at, 4), "little")
            push(_exactly(data, at + 4, length).decode("utf-8", "surrogatepass"))
            at += 4 + length
        elif code == 0x95:  # FRAME
            at += 8
        elif code == 0x89:  # NEWFALSE
            push(False)
        elif code == 0x88:  # NEWTRUE
            push(True)
        elif code == 0x4E:  # NONE
            push(None)
        elif code == 0x47:  # BINFLOAT
            push(struct.unpack_from(">d", data, at)[0])
            at += 8
        elif code == 0x29:  # EMPTY_TUPLE
            push(())
        elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
            items = tuple(stack[-(code - 0x84) :])
            del stack[-(code - 0x84) :]
            push(items)
        elif code == 0x74:  # TUPLE
            mark = marks.pop()
            owners.pop()
            items = tuple(stack[mark:])
            del stack[mark:]
            push(items)
        elif code == 0x71:  # BINPUT
            _put(memo, data[at], stack[-1])
            at += 1
        elif code == 0x72:  # LONG_BINPUT
            _put(memo, from_bytes(_exactly(data, at, 4), "little"), stack[-1])
            at += 4
        elif code == 0x2E:  # STOP
            return stack.pop()
        elif code == 0x80:  # PROTO
            at += 1
        elif code in _CALLS:
            _refuse(data, at, code, stack)
        else:
            at = _rare(data, at, code, stack, marks, owners)


def _rare(data: bytes, at: int, code: int, stack: list[Any], marks: list[int], owners: list[int]) -> int:
    """The instructions that a snapshot hardly has; gives where the next one begins."""
    if code == 0x8D:  # BINUNICODE8
        length = int.from_bytes(_exactly(data, at, 8), "little")
        stack.append(_exactly(data, at + 8, length).decode("utf-8", "surrogatepass"))
        return at + 8 + length
    if code in (0x43, 0x42, 0x8E, 0x96, 0x55, 0x54):  # bytes, bytearray and the strings of Python 2
        width = {0x43: 1, 0x55: 1, 0x42: 4, 0x54: 4}.get(code, 8)
        length = int.from_bytes(_exactly(data, at, width), "little")
        content = _exactly(data, at + width, length)
        stack.append(content.decode("utf-8", "replace") if code in (0x55, 0x54) else content)
        return at + width + length
    if code == 0x30:  # POP
        stack.pop()
    elif code == 0x31:  # POP_MARK
        del stack[marks.pop() :]
        owners.pop()
    elif code == 0x32:  # DUP
        stack.append(stack[-1])
    elif code == 0x8F:  # EMPTY_SET
        stack.append([])
    elif code == 0x90:  # ADDITEMS
        mark = marks.pop()
        owners.pop()
        stack[mark - 1].extend(stack[mark:])
        del stack[mark:]
    elif code in (0x6C, 0x64, 0x91):  # LIST, DICT, FROZENSET
        mark = marks.pop()
        owners.pop()
        items = stack[mark:]
        del stack[mark:]
        if code == 0x64 and tuple in map(type, items[::2]):
            raise UnpicklingError("it has a tuple as a key")
        stack.append(dict(zip(items[::2], items[1::2], strict=True)) if code == 0x64 else items)
    else:
        raise UnpicklingError(f"it is no pickle of plain data (instruction 0x{code:02x} at byte {at - 1})")
    return at


def _referred(references: bytes, memo: list[Any]) -> list[Any]:
    """The objects that a run of BINGET and LONG_BINGET names."""
    made, at = [], 0
    while at < len(references):
        wide = references[at] == 0x6A
        end = at + (5 if wide else 2)
        made.append(memo[int.from_bytes(references[at + 1 : end], "little")])
        at = end
    return made


def _index(memo: list[Any], indexed: int, homes: dict[int, int]) -> int:
    """Notes where dictionaries stand in the memo from `indexed` on, so that none is looked at twice."""
    for place in range(indexed, len(memo)):
        if type(memo[place]) is dict:
            homes[id(memo[place])] = place
    return len(memo)


def _put(memo: list[Any], place: int, value: Any) -> None:
    if place == len(memo):
        memo.append(value)
    elif place < len(memo):
        memo[place] = value
    else:
        raise UnpicklingError(f"it is damaged (entry {place} of a memo that has {len(memo)})")


def _plain_length(length: int) -> int:
    if length > MAX_INTEGER_BYTES:
        raise UnpicklingError(f"it has an integer of {length} bytes")
    return length


def _exactly(data: bytes, at: int, length: int) -> bytes:
    part = data[at : at + length]
    if len(part) != length:
        raise IndexError
    return part


def _refuse(data: bytes, at: int, code: int, stack: list[Any]) -> NoReturn:
    """Says what the pickle would have had imported or called."""
    wanted = ""
    if code in (0x63, 0x69):
        module, name = data[at : at + 400].split(b"\n")[:2]
        wanted = f"{module.decode('utf-8', 'replace')}.{name.decode('utf-8', 'replace')}"
    elif code == 0x93 and len(stack) > 1 and all(isinstance(part, str) for part in stack[-2:]):
        wanted = ".".join(stack[-2:])
    what = f"it wants `{wanted[:80]}` imported" if wanted else f"it wants code run ({_CALLS[code]})"
    raise UnsafePickleError(f"{what} at byte {at - 1}; nothing of it was run")
