"""How weight names lead to keys of a checkpoint: exact names and patterns; reads no checkpoint.

A rule says under which key a weight stands: `{"lm_head.weight": "output.weight"}`. In a pattern `*` is one step of a
dotted name and `**` any steps; what they stand for is the same on both sides: `{"layers.*.up": "blk.*.ffn_up"}`. The
prefix that all keys have is stripped by `{"**": "model.**"}`. Exact rules come first, then patterns in their order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

__all__ = ["check_rename", "common_prefix", "expand_rename", "key_of"]

_WILDCARD = re.compile(r"\*\*?")


def check_rename(rename: Mapping[str, str]) -> None:
    """Raise ValueError if the two sides of a rule have different wildcards."""
    for name, key in rename.items():
        if _WILDCARD.findall(name) != _WILDCARD.findall(key):
            raise ValueError(f"rename rule {name!r}: {key!r} must have the same '*' and '**' in the same order")


def key_of(rename: Mapping[str, str], name: str) -> str:
    """The key under which a weight stands; its own name if no rule is about it."""
    if name in rename:
        return rename[name]
    found = (_rewrite(name, pattern, key) for pattern, key in rename.items() if "*" in pattern)
    return next((key for key in found if key is not None), name)


def expand_rename(rename: Mapping[str, str], keys: Collection[str]) -> dict[str, str]:
    """The rules as exact ones, for the keys that there are; a pattern that fits none vanishes."""
    exact = {name: key for name, key in rename.items() if "*" not in name}
    taken = set(exact.values())
    for pattern, target in rename.items():
        for key in keys if "*" in pattern else ():
            name = _rewrite(key, target, pattern)
            if name is not None and name not in exact and key not in taken:
                exact[name] = key
                taken.add(key)
    return exact


def common_prefix(wanted: Collection[str], keys: Collection[str]) -> str:
    """What stands before every wanted name in the keys, such as "model."; "" if there is no such thing."""
    some = min(wanted, default="")
    prefixes = [key.removesuffix(some) for key in keys if some and key.endswith(f".{some}")]
    known = set(keys)
    return next((prefix for prefix in prefixes if all(prefix + name in known for name in wanted)), "")


def _rewrite(text: str, pattern: str, replacement: str) -> str | None:
    found = _regex(pattern).fullmatch(text)
    if found is None:
        return None
    parts = iter(found.groups())
    return _WILDCARD.sub(lambda _: next(parts), replacement)


def _regex(pattern: str) -> re.Pattern[str]:
    # The module `re` keeps compiled patterns.
    literal = [re.escape(part) for part in _WILDCARD.split(pattern)]
    groups = ["(.+)" if star == "**" else r"([^.]+)" for star in _WILDCARD.findall(pattern)] + [""]
    return re.compile("".join(part + group for part, group in zip(literal, groups, strict=True)))
