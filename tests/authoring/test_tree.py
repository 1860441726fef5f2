from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import tree


class Pair(NamedTuple):
    left: Any
    right: Any


@tree.dataclass
class Cache:
    keys: Any
    values: Any


@tree.dataclass(frozen=True)
class FrozenCache:
    keys: Any
    length: int = 0


class Custom:
    def __init__(self, children: list[Any], label: str) -> None:
        self.children, self.label = children, label

    def __tree_flatten__(self) -> tuple[list[Any], str]:
        return self.children, self.label

    @classmethod
    def __tree_unflatten__(cls, meta: str, children: list[Any]) -> Custom:
        return cls(list(children), meta)


@pytest.mark.parametrize(
    ("given_tree", "leaves", "paths"),
    [
        (7, [7], [""]),
        (None, [None], [""]),
        ([], [], []),
        ({"b": [None, 1], "a": (2, 3)}, [2, 3, None, 1], ["a.0", "a.1", "b.0", "b.1"]),
        (Pair(1, {"k": 2}), [1, 2], ["left", "right.k"]),
        (OrderedDict(z=1, a=2), [2, 1], ["a", "z"]),
        (defaultdict(list, z=1, a=2), [2, 1], ["a", "z"]),
        (Cache([1], 2), [1, 2], ["keys.0", "values"]),
        (FrozenCache(1), [1, 0], ["keys", "length"]),
        ({1: "x", 0: ["y"]}, ["y", "x"], ["0.0", "1"]),
    ],
)
def test_flatten_orders_leaves_and_names_their_paths(given_tree: Any, leaves: list[Any], paths: list[str]) -> None:
    found, treedef = tree.flatten(given_tree)
    assert found == leaves
    assert treedef.num_leaves == len(leaves)
    assert tree.flatten_with_paths(given_tree) == list(zip(paths, leaves, strict=True))
    assert tree.unflatten(treedef, found) == given_tree


def test_custom_class_takes_its_own_part() -> None:
    leaves, treedef = tree.flatten({"c": Custom([1, [2]], "meta")})
    assert leaves == [1, 2]
    assert [path for path, _ in tree.flatten_with_paths({"c": Custom([1, [2]], "meta")})] == ["c.0", "c.1.0"]
    rebuilt = tree.unflatten(treedef, ["x", "y"])["c"]
    assert (rebuilt.children, rebuilt.label) == (["x", ["y"]], "meta")


def test_dicts_keep_class_factory_and_insertion_order() -> None:
    leaves, treedef = tree.flatten(defaultdict(list, z=1, a=2))
    rebuilt = tree.unflatten(treedef, leaves)
    assert rebuilt["new"] == []
    assert list(tree.map(str, OrderedDict(z=1, a=2))) == ["z", "a"]


def test_structures_compare_without_leaves_or_insertion_order() -> None:
    structure = tree.flatten({"a": 1, "b": 2})[1]
    assert structure == tree.flatten({"b": None, "a": 0})[1]
    assert structure != tree.flatten({"a": 1, "c": 2})[1]
    assert structure != tree.flatten({"a": 1, "b": [2]})[1]


def test_subclasses_and_plain_dataclasses_are_leaves() -> None:
    @dataclasses.dataclass
    class Plain:
        x: int

    class Names(list[str]):
        pass

    plain, names = Plain(1), Names("ab")
    assert tree.flatten([plain, names])[0] == [plain, names]


def test_tree_dataclass_keeps_an_existing_dataclass_and_skips_init_on_rebuilding() -> None:
    @tree.dataclass
    @dataclasses.dataclass(frozen=True)
    class Checked:
        x: Any

        def __post_init__(self) -> None:
            if not isinstance(self.x, int):
                raise TypeError

    assert tree.map(str, Checked(1)).x == "1"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Checked(1).x = 2  # type: ignore[misc]


def test_map_over_several_trees() -> None:
    assert tree.map(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]}) == {"x": [11, 22]}
    with pytest.raises(ValueError, match=r"differ in structure: dict\(a: list\(0: \*\)\) and dict\(a: \*\)"):
        tree.map(max, {"a": [1]}, {"a": 1})


def test_wrong_number_of_leaves() -> None:
    with pytest.raises(ValueError, match="has 2 leaves, 3 were given"):
        tree.unflatten(tree.flatten([1, 2])[1], [1, 2, 3])


def test_unsortable_keys() -> None:
    with pytest.raises(TypeError, match="keys of type int, str"):
        tree.flatten({1: 0, "a": 0})


@given(
    st.recursive(
        st.none() | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
        ),
        max_leaves=12,
    )
)
def test_unflatten_inverts_flatten(given_tree: Any) -> None:
    leaves, treedef = tree.flatten(given_tree)
    assert tree.unflatten(treedef, leaves) == given_tree


def test_a_subclass_of_a_tree_dataclass_keeps_its_own_fields() -> None:
    @tree.dataclass
    class Base:
        left: object

    @tree.dataclass
    class More(Base):
        right: object = None

    leaves, structure = tree.flatten(More(1, 2))
    assert leaves == [1, 2]
    assert tree.unflatten(structure, [3, 4]) == More(3, 4)
