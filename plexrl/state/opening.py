"""Opens the durable tier that a configuration names: a folder, or a URL."""

from __future__ import annotations

from collections.abc import Mapping

from plexrl.errors import StoreError
from plexrl.state.object_store import ObjectStore
from plexrl.state.zarr_store import ZarrStore


def is_url(where: str) -> bool:
    """Whether a store is named by a URL, and not by the path of a folder."""
    return "://" in where


def open_store(
    where: str,
    *,
    durable: bool = True,
    shared: bool = False,
    options: Mapping[str, str] | None = None,
) -> ZarrStore | ObjectStore:
    """Open a store for writing.

    Parameters
    ----------
    where
        Path of a folder, or a URL such as ``s3://bucket/prefix``.
    durable, shared
        See `ZarrStore`; a store at a URL is always both.
    options
        See `plexrl.state.buckets.Bucket`; only for a URL.

    Raises
    ------
    StoreError
        It cannot be opened.
    """
    if is_url(where):
        return ObjectStore(where, options=options)
    if options:
        raise StoreError(f"the folder {where} takes no options; leave out {', '.join(options)}")
    return ZarrStore(where, durable=durable, shared=shared)
