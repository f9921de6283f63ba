"""
``Optimizer.state`` of suture.torch: for each parameter a dict of tensors that are the optimizer's own memory. Writing into
those tensors needs no help. Dicts, however, can be edited: cleared, replaced, given other tensors. They remember that it
happened, and the optimizer takes over what they hold before it does anything else.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any


class _Flag:
    """Whether a dict that shares it was edited."""

    def __init__(self) -> None:
        self.edited = False


def _edits(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.flag.edited = True
        return getattr(super(type(self), self), name)(*args, **kwargs)

    method.__name__ = name
    return method


class Slots(dict[str, Any]):
    """State of one parameter, by the name of the slot."""

    def __init__(self, flag: _Flag, tensors: dict[str, Any]) -> None:
        super().__init__(tensors)
        self.flag = flag

    def __reduce__(self) -> Any:  # copies and pickles are plain dicts
        return dict, (dict(self),)


class Shown(defaultdict[Any, Any]):
    """State by parameter. As in every optimizer of PyTorch, looking for one that has none makes an empty entry."""

    def __init__(self) -> None:
        super().__init__(dict)
        self.flag = _Flag()

    def __missing__(self, key: Any) -> Any:
        entry = Slots(self.flag, {})
        super().__setitem__(key, entry)
        return entry

    def __reduce__(self) -> Any:
        return defaultdict, (dict, {key: dict(entry) for key, entry in self.items()})

    def copy(self) -> defaultdict[Any, Any]:  # type: ignore[override]
        return defaultdict(dict, self)

    def __copy__(self) -> defaultdict[Any, Any]:  # type: ignore[override]
        return self.copy()

    def show(self, state: dict[Any, dict[str, Any]]) -> None:
        """Hold this and nothing else, which is no edit. Entries stay the objects that they are."""
        for key in [key for key in self if key not in state]:
            super().__delitem__(key)
        for key, tensors in state.items():
            entry = self.get(key)
            if isinstance(entry, Slots) and entry.flag is self.flag:
                dict.clear(entry)
                dict.update(entry, tensors)
            else:
                super().__setitem__(key, Slots(self.flag, tensors))
        self.flag.edited = False


for _class in (Slots, Shown):
    for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
        setattr(_class, _name, _edits(_name))
