"""The steps of a pickle followed without unpickling: plain values, and the few named things that the caller allows."""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

__all__ = ["Attributes", "build_tree"]

_MARK = object()
_SINGLE = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK, "EMPTY_TUPLE": ()}
_IGNORED = {"PROTO", "FRAME"}
_VALUES = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}


class Attributes(dict[str, Any]):
    """What is kept of an object: its attributes by name."""


def build_tree(
    content: BinaryIO, allowed: Mapping[str, Any], resolve: Callable[[Any], Any] = lambda identity: identity
) -> Any:
    """What a pickle describes.

    Args:
        content: Read up to the end of the pickle.
        allowed: What stands for a dotted name, or for all names of a package, "package.*"; what is callable may be
            called with the pickle's arguments.
        resolve: What stands for a persistent identity.

    Raises:
        ValueError: A step or a name is not allowed, or the bytes are no pickle.
    """
    builder = _Builder(allowed, resolve)
    try:
        with warnings.catch_warnings():
            # Text with an escape that is none; no pickler writes such.
            warnings.simplefilter("error", DeprecationWarning)
            for step, argument, _ in pickletools.genops(content):
                builder.take(step.name, argument)
    except DeprecationWarning as error:
        raise ValueError(str(error)) from None
    return builder.stack.pop()


class _Builder:
    def __init__(self, allowed: Mapping[str, Any], resolve: Callable[[Any], Any]) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._allowed = allowed
        self._resolve = resolve

    def take(self, step: str, argument: Any) -> None:
        if step in _VALUES:
            self.stack.append(argument)
        elif step in _SINGLE:
            self.stack.append(_SINGLE[step])
        elif step in _PUTS or step == "MEMOIZE":
            self._memo[len(self._memo) if argument is None else argument] = self.stack[-1]
        elif step in _GETS:
            self.stack.append(self._memo[argument])
        elif step not in _IGNORED:
            self._perform(step, argument)

    def _perform(self, step: str, argument: Any) -> None:
        known = getattr(self, f"_do_{step.lower()}", None)
        if known is None:
            raise ValueError(f"its pickle takes the step {step}, which is not allowed")
        known(argument)

    def _do_stop(self, _: Any) -> None:
        pass

    def _do_empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def _do_empty_list(self, _: Any) -> None:
        self.stack.append([])

    def _do_tuple(self, _: Any) -> None:
        self.stack.append(tuple(self._since_mark()))

    def _do_tuple1(self, _: Any) -> None:
        self.stack[-1:] = [tuple(self.stack[-1:])]

    def _do_tuple2(self, _: Any) -> None:
        self.stack[-2:] = [tuple(self.stack[-2:])]

    def _do_tuple3(self, _: Any) -> None:
        self.stack[-3:] = [tuple(self.stack[-3:])]

    def _do_append(self, _: Any) -> None:
        value = self.stack.pop()
        self.stack[-1].append(value)

    def _do_appends(self, _: Any) -> None:
        values = self._since_mark()
        self.stack[-1].extend(values)

    def _do_setitem(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][key] = value

    def _do_setitems(self, _: Any) -> None:
        pairs = iter(self._since_mark())
        self.stack[-1].update(zip(pairs, pairs, strict=True))

    def _do_global(self, argument: str) -> None:
        self.stack.append(self._named(argument.replace(" ", ".")))

    def _do_stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._named(f"{module}.{name}"))

    def _do_reduce(self, _: Any) -> None:
        arguments, made_by = self.stack.pop(), self.stack.pop()
        if not callable(made_by) or not any(made_by is one for one in self._allowed.values()):
            raise ValueError(f"its pickle calls {made_by!r}, which is not allowed")
        self.stack.append(made_by(*arguments))

    def _do_newobj(self, _: Any) -> None:
        self._do_reduce(None)

    def _do_build(self, _: Any) -> None:
        state = self.stack.pop()
        # An OrderedDict is given some too, which a dict has no place for.
        if isinstance(self.stack[-1], Attributes):
            self.stack[-1].update(state)

    def _do_binpersid(self, _: Any) -> None:
        self.stack.append(self._resolve(self.stack.pop()))

    def _named(self, name: str) -> Any:
        for known in (name, f"{name.partition('.')[0]}.*"):
            if known in self._allowed:
                return self._allowed[known]
        raise ValueError(f"its pickle names {name}, which is not allowed; save only the state dict's tensors")

    def _since_mark(self) -> list[Any]:
        begin = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        values = self.stack[begin + 1 :]
        del self.stack[begin:]
        return values
