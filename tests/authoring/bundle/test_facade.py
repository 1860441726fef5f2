from __future__ import annotations

import pytest

from tidemill import bundle


def test_every_public_name_is_there() -> None:
    assert sorted(bundle.__all__) == bundle.__all__
    for name in bundle.__all__:
        assert getattr(bundle, name).__module__.startswith("tidemill.bundle.")


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Bundel'"):
        _ = bundle.Bundel
