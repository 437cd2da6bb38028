"""Finds what holds an object: a variable of the user's, an attribute, or a container in one of them.

The garbage collector tells which containers refer to an object. Local variables of running functions are in no
container that it knows; they are read from the frames. Nothing of the user's runs: no property, no `__getattr__`, no
comparison, and no `isinstance`, which asks an object for its class.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CellType, FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from gpudoctor.userfiles import UserFiles, function_name

MAX_DEPTH = 7  # a record in a list in an attribute of an attribute: deeper nesting has no name that helps
MAX_SORTS = 8  # of tensors that are looked for at once, three of each: a pass compares each reference with all of them
MAX_ROUNDS = 3
_NESTING, _MAX_MEMBERS = 4, 20_000
_MAX_REFERRERS = 2_000  # of one level: what so many things refer to is no one's
_READ_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})
_OPTIMIZED = 0x1  # inspect.CO_OPTIMIZED: a function's frame, whose `f_locals` is a copy
_OWN_REFERENCES = 4  # the frame's, the caller's, the parameter's and that of the count: with more somebody keeps it
_OURS = "gpudoctor."


@dataclass(frozen=True, slots=True)
class Holder:
    """A name that leads to an object.

    Attributes:
        scope: local, global, attribute or closure.
        name: the variable's name or the attribute's.
        owner: class of the object that has the attribute; None for variables.
        file: user's file of the function or module; None for attributes.
        function: function of a local variable.
        container: kind of the outermost container below the name (list, dict, deque, …); None when the name is bound
            to the object itself.
        bounded: that container does not grow without end by itself: a deque with a length, a list with free places.
    """

    scope: str
    name: str
    owner: str | None = None
    file: str | None = None
    function: str | None = None
    container: str | None = None
    bounded: bool = False


_Found = list[tuple[Holder, Any] | None]
"""By number of the target: its holder and the container that the name leads to; None while no name was found."""


class _Level:
    """Objects on the way up: each with the targets that it leads to and the key under which it holds them."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.origins: list[set[int]] = []
        self.keys: list[Any] = []
        self.places: dict[int, int] = {}

    def add(self, thing: Any, origins: Iterable[int], key: Any = None) -> None:
        place = self.places.get(id(thing))
        if place is None:
            self.places[id(thing)] = len(self.objects)
            self.objects.append(thing)
            self.origins.append(set(origins))
            self.keys.append(key)
        else:
            self.origins[place] |= set(origins)

    def own(self) -> list[Any]:
        return [self, self.__dict__, self.objects, self.origins, self.keys, self.places, *self.origins]


class Search:
    """Looks for the names of tensors.

    Args:
        frame: the innermost frame to look for variables in; those of the user's files count.
        files: the user's files.
        ignore: containers of the caller's that refer to the tensors.
    """

    def __init__(self, frame: FrameType | None, files: UserFiles, ignore: Sequence[Any]) -> None:
        self._variables = _variables(frame, files)
        self._globals = _modules(files)
        self._ignored = {id(thing) for thing in (*ignore, ignore, self._variables, self._globals)}

    def of_all(self, tensors: Sequence[Any]) -> dict[int, Holder]:
        """Holders by the tensors' identities: of some that are looked for, and of all that is in the same holders."""
        found: dict[int, Holder] = {}
        tried: set[int] = set()
        for _ in range(MAX_ROUNDS):
            left = [tensor for tensor in tensors if id(tensor) not in found and id(tensor) not in tried]
            targets = _samples(left)
            tried |= set(map(id, targets))
            for target, new in zip(targets, self._of(targets, [tensors, left]) if targets else [], strict=True):
                if new is not None:
                    holder, container = new
                    found[id(target)] = holder
                    for member in _members(container):
                        found.setdefault(member, holder)
        return found

    def _of(self, targets: Sequence[Any], ignore: Sequence[Any]) -> _Found:
        found: _Found = [None] * len(targets)
        level = _Level()
        for number, target in enumerate(targets):
            level.add(target, (number,))
        seen = self._ignored | {id(thing) for thing in (*ignore, ignore, targets, found, *level.own())}
        for depth in range(MAX_DEPTH):
            for place, thing in enumerate(level.objects):
                named = self._variables.get(id(thing))
                if named is not None:
                    _tell(found, level.origins[place], named, thing if depth else None)
            level = _up(level, found, self._globals, seen)
            if not level.objects:
                break
        return found


def _samples(tensors: Sequence[Any]) -> list[Any]:
    """Some of the tensors: the first, the middle and the last of each sort, of the most frequent sorts."""
    sorts: dict[Any, list[Any]] = {}
    for tensor in tensors:
        try:
            made_by = tensor.grad_fn.name() if tensor.requires_grad and not tensor.is_leaf else None
        except RuntimeError:  # a view that was changed in place outside of autograd
            made_by = None
        sorts.setdefault((made_by, tensor.dtype, tensor.dim()), []).append(tensor)
    most = sorted(sorts.values(), key=len, reverse=True)[:MAX_SORTS]
    return [one[at] for one in most for at in sorted({0, len(one) // 2, len(one) - 1})]


def _members(container: Any) -> Iterator[int]:
    """Identities of what a container holds, and of what is in containers in it."""
    level = [container] if container is not None else []
    for _ in range(_NESTING):
        inside = [one for thing in level for one in gc.get_referents(thing)]
        yield from map(id, inside)
        level = [one for one in inside[:_MAX_MEMBERS] if _is_container(one)]


def _tell(found: _Found, origins: set[int], holder: Holder, container: Any | None) -> None:
    told = _around(holder, container), container
    for origin in origins:
        if found[origin] is None:
            found[origin] = told


def _around(named: Holder, container: Any | None) -> Holder:
    if container is None:
        return named
    bounded = False
    if issubclass(type(container), deque):
        bounded = container.maxlen is not None
    elif type(container) is list:
        bounded = any(item is None for item in container)
    return replace(named, container=type(container).__name__, bounded=bounded)


def _up(level: _Level, found: _Found, globals_of: dict[int, str | None], seen: set[int]) -> _Level:
    """The containers of those objects whose targets have no name yet; what they name is told."""
    above = _Level()
    open_places = [place for place, origins in enumerate(level.origins) if any(found[o] is None for o in origins)]
    things = [level.objects[place] for place in open_places]
    if not things:
        return above
    referrers = gc.get_referrers(*things)
    seen |= {id(thing) for thing in (things, referrers, above, *above.own(), *level.own())}
    if len(referrers) > _MAX_REFERRERS:
        return above
    for referrer in referrers:
        if id(referrer) in seen or type(referrer) in (FrameType, ModuleType) or _is_ours(referrer):
            continue
        inside = [level.places[id(one)] for one in gc.get_referents(referrer) if id(one) in level.places]
        for place in inside:
            _step(referrer, level, place, above, found, globals_of)
    seen |= {id(thing) for thing in (*above.own(), *above.objects)} - {id(thing) for thing in above.objects}
    return above


def _step(
    referrer: Any,
    level: _Level,
    place: int,
    above: _Level,
    found: _Found,
    globals_of: dict[int, str | None],
) -> None:
    """One referrer of one object: it names it, or is looked at on the next level."""
    thing, origins = level.objects[place], level.origins[place]
    container = thing if _is_container(thing) else None
    if type(referrer) is dict:
        key = _key(referrer, thing)
        if id(referrer) in globals_of:
            if key is not None:
                _tell(found, origins, Holder("global", key, file=globals_of[id(referrer)]), container)
            return
        above.add(referrer, origins, key)
    elif type(referrer) is CellType:
        above.add(referrer, origins)
    elif type(referrer) is FunctionType:
        _closure(referrer, thing, level.keys[place], origins, found)
    elif _is_container(referrer):
        above.add(referrer, origins, id(thing))
    else:
        _attribute(referrer, level, place, found)


def _is_container(thing: Any) -> bool:
    return type(thing) in (list, tuple, dict, set, frozenset, deque) or issubclass(
        type(thing), list | tuple | dict | set | deque
    )


def _attribute(owner: Any, level: _Level, place: int, found: _Found) -> None:
    thing, origins = level.objects[place], level.origins[place]
    name = f"{type(owner).__qualname__}".replace("<locals>.", "")
    attributes = _attributes(owner)
    if attributes is not None and attributes is thing:  # the object's own namespace: the key was noted on the way up
        key = level.keys[place]
        below = attributes.get(key) if key is not None else None
        if key is not None:
            _tell(found, origins, Holder("attribute", key, name), below if _is_container(below) else None)
        return
    key = _key(attributes, thing) if attributes is not None else _slot(owner, thing)
    if key is not None:
        _tell(found, origins, Holder("attribute", key, name), thing if _is_container(thing) else None)


def _attributes(owner: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(owner, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None


def _slot(owner: Any, thing: Any) -> str | None:
    for kind in type.__getattribute__(type(owner), "__mro__"):
        for name, member in vars(kind).items():
            if type(member) is MemberDescriptorType:
                try:
                    if member.__get__(owner) is thing:
                        return str(name)
                except (AttributeError, TypeError):
                    continue
    return None


def _closure(function: FunctionType, cells: Any, cell_id: Any, origins: set[int], found: _Found) -> None:
    if function.__closure__ is not cells:
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if id(cell) == cell_id:
            content = cell.cell_contents
            holder = Holder("closure", name, function=function_name(function.__code__))
            _tell(found, origins, holder, content if _is_container(content) else None)


def _key(names: dict[Any, Any] | None, thing: Any) -> str | None:
    return next((key for key, value in list((names or {}).items()) if value is thing and type(key) is str), None)


def _is_ours(referrer: Any) -> bool:
    return type(referrer).__module__.startswith(_OURS) if type(type(referrer).__module__) is str else False


def _modules(files: UserFiles) -> dict[int, str | None]:
    """Namespaces of the user's modules, by identity, with the file's name."""
    found: dict[int, str | None] = {}
    for module in list(sys.modules.values()):
        if type(module) is ModuleType:
            names = vars(module)
            file = names.get("__file__")
            name = files.name(file) if type(file) is str else None
            if name is not None:
                found[id(names)] = name
    return found


def _variables(frame: FrameType | None, files: UserFiles) -> dict[int, Holder]:
    """What the local variables of the user's running functions are bound to, by identity."""
    found: dict[int, Holder] = {}
    while frame is not None:
        code = frame.f_code
        file = files.name(code.co_filename)
        # a function that reads its own variables as a mapping may keep that mapping: it must not change
        if file is not None and code.co_flags & _OPTIMIZED and not _READ_LOCALS & set(code.co_names):
            names = frame.f_locals
            for name, value in names.items():
                found.setdefault(id(value), Holder("local", name, file=file, function=function_name(code)))
            _let_go(names)
        frame = frame.f_back
    return found


def _let_go(names: Any) -> None:
    """Up to Python 3.12 the copy stays with the frame, and would keep what the function lets go."""
    if type(names) is dict and sys.getrefcount(names) <= _OWN_REFERENCES:
        names.clear()
