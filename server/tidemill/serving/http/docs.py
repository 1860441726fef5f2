"""The page that shows the OpenAPI document to a person: one file of our own, so that it works without the internet."""

from __future__ import annotations

from pathlib import Path

__all__ = ["docs_page"]

_PAGE = Path(__file__).with_name("docs.html")


def docs_page(openapi_url: str) -> str:
    """The page as HTML.

    Args:
        openapi_url: Where the page finds the document.
    """
    return _PAGE.read_text(encoding="utf-8").replace("OPENAPI_URL", openapi_url)
