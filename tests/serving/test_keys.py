from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.errors import ConfigError, Unauthenticated
from tidemill.serving.config import ServerConfig
from tidemill.serving.keys import GROUPS, KeyRing, Keys, with_keys

SHOP, SEARCH = "key-of-the-shop-1", "key-of-the-search"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_group_without_keys_is_open_and_one_with_keys_is_not() -> None:
    keys = Keys({"inference": (SHOP, SEARCH)})
    keys.check("health", None)
    keys.check("inference", SHOP)
    keys.check("inference", SEARCH)
    assert keys.guards("inference")
    assert not keys.guards("health")


@pytest.mark.parametrize("given", [None, "", SHOP[:-1], SHOP + "x", SHOP.upper(), "ключ" * 5])
def test_a_wrong_key_is_refused_and_not_repeated(given: str | None) -> None:
    with pytest.raises(Unauthenticated) as refused:
        Keys({"inference": (SHOP,)}).check("inference", given)
    assert "inference" in str(refused.value)
    assert SHOP not in str(refused.value)
    assert not given or given not in str(refused.value)


def test_all_stands_for_the_groups_that_are_not_named(tmp_path: Path) -> None:
    keys = Keys.read(write(tmp_path / "keys", f"all: {SHOP}\nrepository: [{SEARCH}]\n"))
    assert all(keys.guards(group) for group in GROUPS)
    keys.check("metadata", SHOP)
    keys.check("repository", SEARCH)
    with pytest.raises(Unauthenticated):
        keys.check("repository", SHOP)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("inferenc: [aaaaaaaaaaaaaaaa]", "names the group 'inferenc'; known are health, metadata"),
        ("", "names no group"),
        ("inference: []", "must hold a list of keys for inference"),
        ("inference: {a: b}", "must hold a list of keys for inference"),
        ("inference: [1234567890123456789]", "each as text"),
        ("inference: [tooshort-secret]", "at least 16"),
        ("inference: ['with a blank inside it']", "at least 16 printable"),
        ("- aaaaaaaaaaaaaaaaaaaaaaa", "must hold settings as"),
        ("inference: [aaaaaaaaaaaaaaaaaaaaa", "is not YAML (line 1)"),
    ],
)
def test_a_wrong_file_is_told_without_its_keys(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Keys.read(write(tmp_path / "keys", text))
    assert told in str(refused.value)
    assert not any(secret in str(refused.value) for secret in ("aaaa", "123456", "tooshort", "blank"))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        KeyRing(tmp_path / "keys")


def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path) -> None:
    path = write(tmp_path / "keys", f"inference: {SHOP}\n")
    ring = KeyRing(path)
    assert not ring.renew()
    write(tmp_path / "new", f"inference: {SEARCH}\n").replace(path)
    assert ring.renew()
    ring.keys.check("inference", SEARCH)
    write(tmp_path / "new", "inference: [").replace(path)
    assert not ring.renew()
    ring.keys.check("inference", SEARCH)
    for fewer in ("", f"metadata: {SEARCH}\n"):
        write(tmp_path / "new", fewer).replace(path)
        assert not ring.renew()
        assert ring.keys.guards("inference")
    path.unlink()
    assert not ring.renew()
    ring.keys.check("inference", SEARCH)


def test_keys_open_beyond_loopback_what_they_guard() -> None:
    config = ServerConfig(host="0.0.0.0")
    assert (config.effective_model_control, config.may_change_settings) == ("none", False)
    opened = with_keys(config, Keys({"repository": (SHOP,), "settings": (SEARCH,)}))
    assert (opened.effective_model_control, opened.may_change_settings) == ("explicit", True)
    kept = with_keys(ServerConfig(host="0.0.0.0", model_control="none"), Keys({"repository": (SHOP,)}))
    assert kept.effective_model_control == "none"
