"""Settings of stores where the clouds' own tools look for them; what obstore finds by itself is left to it."""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

__all__ = ["store_config"]

# The names of Azure's command line, beside those that obstore reads (AZURE_STORAGE_ACCOUNT_NAME, ...).
_AZURE_VARIABLES = {
    "AZURE_STORAGE_ACCOUNT": "account_name",
    "AZURE_STORAGE_KEY": "account_key",
    "AZURE_STORAGE_SAS_TOKEN": "sas_key",
}
_AZURE_CONNECTION = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_key",
    "blobendpoint": "endpoint",
}
_AWS_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}


def store_config(scheme: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of a store by obstore's names.

    Args:
        scheme: "s3", "gs", "az", "http" or "https".
        environ: The environment variables.

    Returns:
        For s3 the profile of ~/.aws (AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE) where no variable says
        otherwise; for gs STORAGE_EMULATOR_HOST; for az the variables of Azure's command line.
    """
    readers = {"s3": _aws, "gs": _google, "az": _azure}
    return readers[scheme](environ) if scheme in readers else {}


def _aws(environ: Mapping[str, str]) -> dict[str, str]:
    profile = environ.get("AWS_PROFILE", "default")
    home = Path(environ.get("HOME", "~")).expanduser() / ".aws"
    section = "default" if profile == "default" else f"profile {profile}"
    found = _section(Path(environ.get("AWS_CONFIG_FILE", home / "config")), section)
    found |= _section(Path(environ.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials")), profile)
    if "AWS_ACCESS_KEY_ID" in environ:
        found = {key: value for key, value in found.items() if key in ("region", "endpoint_url")}
    config = {_AWS_KEYS[key]: value for key, value in found.items() if key in _AWS_KEYS}
    if {"AWS_REGION", "AWS_DEFAULT_REGION"} & environ.keys():
        config.pop("region", None)
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
    return config | ({"endpoint": endpoint} if endpoint else {})


def _section(file: Path, name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None)
    parser.read(file)  # a file that is not there counts as empty
    return dict(parser[name]) if parser.has_section(name) else {}


def _google(environ: Mapping[str, str]) -> dict[str, str]:
    host = environ.get("STORAGE_EMULATOR_HOST")
    if not host:
        return {}
    # An emulator knows nobody, so nothing is signed.
    return {"base_url": host if "://" in host else f"http://{host}", "skip_signature": "true"}


def _azure(environ: Mapping[str, str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";"))
    given = {key.lower(): value for key, _, value in pairs}
    config = {setting: given[key] for key, setting in _AZURE_CONNECTION.items() if key in given}
    return config | {setting: environ[name] for name, setting in _AZURE_VARIABLES.items() if name in environ}
