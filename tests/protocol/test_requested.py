from __future__ import annotations

from typing import Any

import pytest

from tidemill.errors import InvalidArgument, Unsupported
from tidemill.protocol.requested import no_regions, region_parameters, region_slice, requested_output
from tidemill.protocol.types import RegionSlice, RequestedOutput

PLACE = {"shared_memory_region": "r", "shared_memory_byte_size": 8}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, RequestedOutput("y", True)),
        ({"binary_data": False}, RequestedOutput("y", False)),
        ({"classification": 3}, RequestedOutput("y", True, 3)),
        ({"classification": 0}, RequestedOutput("y", True)),
        # tritonclient says binary_data: false beside shared memory.
        ({**PLACE, "binary_data": False}, RequestedOutput("y", False, 0, RegionSlice("r", 8))),
        ({**PLACE, "shared_memory_offset": 4}, RequestedOutput("y", False, 0, RegionSlice("r", 8, 4))),
    ],
)
def test_what_is_asked_of_an_output(parameters: dict[str, Any], expected: RequestedOutput) -> None:
    assert requested_output("y", parameters, binary=True) == expected


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"binary_data": 1}, "binary_data is 1, expected a boolean"),
        ({"classification": -1}, "classification is -1"),
        ({"classification": True}, "classification is True"),
        ({"classification": "3"}, "classification is '3'"),
        ({"shared_memory_region": 3}, "shared_memory_region is 3"),
        ({"shared_memory_region": ""}, "shared_memory_region is ''"),
        ({"shared_memory_region": "r"}, "shared_memory_byte_size is None"),
        ({**PLACE, "shared_memory_offset": -1}, "shared_memory_offset is -1"),
        ({**PLACE, "shared_memory_byte_size": 2**63}, "expected a whole number"),
        ({**PLACE, "classification": 2}, "a classification in shared memory"),
        ({**PLACE, "binary_data": True}, "binary data and for shared memory"),
    ],
)
def test_wrong_and_contradicting_parameters(parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        requested_output("y", parameters, binary=False)


@pytest.mark.parametrize("place", [RegionSlice("r", 8), RegionSlice("r", 0, 7)])
def test_places_round_trip(place: RegionSlice) -> None:
    assert region_slice(region_parameters(place), "output 'y'") == place


def test_without_shared_memory() -> None:
    assert region_slice({}, "input 'x'") is None
    with pytest.raises(Unsupported):
        no_regions(RegionSlice("r", 8))
