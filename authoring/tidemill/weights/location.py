"""Whether a place is a path or a URL, and what a URL may be shown as; opens nothing."""

from __future__ import annotations

from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["SCHEMES", "file_name", "is_url", "scheme_of", "shown", "split_url"]

SCHEMES = ("s3", "gs", "az", "http", "https")


def is_url(place: str | PathLike[str]) -> bool:
    """Whether this names something in a store rather than a local file."""
    return "://" in fspath(place)


def scheme_of(url: str) -> str:
    """The scheme of a URL; ValueError if it is none that tidemill reads."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        close = get_close_matches(scheme, SCHEMES, n=1)
        hint = f"did you mean {close[0]}://?" if close else f"known are {', '.join(f'{it}://' for it in SCHEMES)}"
        raise ValueError(f"{shown(url)} has the scheme {scheme!r}, which cannot be read; {hint}")
    return scheme


def split_url(url: str) -> tuple[str, str]:
    """The URL of the folder and the file's name in it; a signed URL is a folder of its own, its file has no name."""
    scheme_of(url)
    parts = urlsplit(url)
    if parts.query:
        return url, ""
    folder, _, name = parts.path.rpartition("/")
    if not name or not parts.netloc:
        raise ValueError(f"{url} names no file")
    return urlunsplit(parts._replace(path=folder, fragment="")), unquote(name) if "http" in parts.scheme else name


def file_name(url: str) -> str:
    """The last step of the URL's path."""
    return PurePosixPath(unquote(urlsplit(url).path)).name


def shown(url: str) -> str:
    """The URL without user, password and query, which may be secrets; also what a file is remembered under."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
