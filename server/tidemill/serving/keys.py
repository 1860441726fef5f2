"""API keys: which group of the API wants one, and whether a caller's is right; knows no transport.

A file names the keys of each group, one or several, so that a new one can be handed out before the old one ends:

    inference: [the-key-of-the-shop, the-key-of-the-search]
    repository: [the-key-of-deployments]

A group that the file does not name is open. `all` stands for every group that is not named itself. Keys are kept as
digests, compared in constant time, and never shown.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from tidemill.errors import ConfigError, Unauthenticated
from tidemill.serving.config import ServerConfig, read_yaml
from tidemill.serving.watched import stamp

__all__ = ["GROUPS", "Group", "KeyRing", "Keys", "with_keys"]

Group = Literal["health", "metadata", "inference", "repository", "statistics", "settings"]
GROUPS: tuple[Group, ...] = get_args(Group)
_ALL = "all"
_SHORTEST = 16
_LOG = logging.getLogger("tidemill.keys")


class Keys:
    """The keys of each group as digests."""

    def __init__(self, keys: Mapping[Group, tuple[str, ...]] | None = None) -> None:
        """Take the keys of each group; a group without any is open."""
        self._digests = {group: tuple(map(_digest, some)) for group, some in (keys or {}).items() if some}

    def guards(self, group: Group) -> bool:
        """Whether a group wants a key."""
        return group in self._digests

    def check(self, group: Group, key: str | None) -> None:
        """Let a caller pass.

        Args:
            group: What is asked for.
            key: What the caller showed; None for nothing.

        Raises:
            Unauthenticated: The group wants a key and this is none of its.
        """
        digests = self._digests.get(group)
        if digests is None:
            return
        if key is None:
            raise Unauthenticated(f"{group} wants a key: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`")
        given = _digest(key)
        # All are compared, so that the time tells nothing of which is close.
        if not sum(hmac.compare_digest(given, digest) for digest in digests):
            raise Unauthenticated(f"the key is not one of those that may use {group}")

    def opens(self, group: Group, key: str | None) -> bool:
        """Whether `check` lets a caller pass."""
        try:
            self.check(group, key)
        except Unauthenticated:
            return False
        return True

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The keys of a file.

        Raises:
            ConfigError: It cannot be read, or a group or key in it is wrong; no key is shown.
        """
        content = read_yaml(path)
        unknown = sorted(set(content) - {*GROUPS, _ALL})
        if unknown:
            raise ConfigError(f"{path} names the group {unknown[0]!r}; known are {', '.join(GROUPS)} and {_ALL}")
        if not content:
            raise ConfigError(f"{path} names no group, which would open all of them; leave keys_file out to do so")
        named = {group: _listed(path, group, keys) for group, keys in content.items()}
        rest = named.pop(_ALL, ())
        return cls({group: named.get(group, rest) for group in GROUPS})


class KeyRing:
    """Keys that follow their file: a changed file counts from the next look on, a broken one changes nothing.

    Attributes:
        keys: Those that count now.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Read the file.

        Args:
            path: The file; None for no keys at all.

        Raises:
            ConfigError: It cannot be read or is wrong.
        """
        self._path = path
        self._seen = stamp(path)
        self.keys = Keys.read(path) if path else Keys()

    def renew(self) -> bool:
        """Look whether the file has changed; True if other keys count from now on."""
        seen = stamp(self._path)
        if self._path is None or seen == self._seen:
            return False
        self._seen = seen
        try:
            fresh = Keys.read(self._path)
            if opened := [group for group in GROUPS if self.keys.guards(group) and not fresh.guards(group)]:
                raise ConfigError(f"{self._path} no longer has keys for {', '.join(opened)}; restart to open a group")
            self.keys = fresh
        except ConfigError as error:
            _LOG.error("the keys stay as they were: %s", error)
            return False
        _LOG.info("the keys were read again")
        return True


def with_keys(config: ServerConfig, keys: Keys) -> ServerConfig:
    """The settings of a server with keys: what only loopback may use is open beyond it if it wants a key."""
    changes: dict[str, Any] = {}
    if config.model_control is None and keys.guards("repository"):
        changes["model_control"] = "explicit"
    if config.settings_control is None and keys.guards("settings"):
        changes["settings_control"] = True
    return config.model_copy(update=changes)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _listed(path: Path, group: str, keys: object) -> tuple[str, ...]:
    found = [keys] if isinstance(keys, str) else keys
    if not isinstance(found, list) or not found or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"{path} must hold a list of keys for {group}, each as text")
    if any(len(key) < _SHORTEST or not key.isascii() or not key.isprintable() or " " in key for key in found):
        raise ConfigError(f"a key for {group} in {path} must have at least {_SHORTEST} printable ASCII characters")
    return tuple(found)
