"""Opens the durable tier that a configuration names: a folder, or a URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from plexrl.errors import StoreError
from plexrl.state.object_store import ObjectStore
from plexrl.state.places import is_url
from plexrl.state.zarr_store import ZarrStore


def open_store(
    where: str | Path,
    *,
    durable: bool = True,
    shared: bool = False,
    read_only: bool = False,
    holder: str | None = None,
    options: Mapping[str, str] | None = None,
) -> ZarrStore | ObjectStore:
    """Open a store.

    Parameters
    ----------
    where
        Path of a folder, or a URL such as ``s3://bucket/prefix``.
    durable, shared, read_only
        See `ZarrStore`; a store at a URL is always durable and shared.
    holder
        See `ObjectStore`; only for a URL.
    options
        See `plexrl.state.buckets.Bucket`; only for a URL.

    Raises
    ------
    StoreError
        It cannot be opened.
    """
    if is_url(where):
        return ObjectStore(str(where), options=options, read_only=read_only, holder=holder)
    if options:
        raise StoreError(f"the folder {where} takes no options; leave out {', '.join(options)}")
    return ZarrStore(where, durable=durable, shared=shared, read_only=read_only)


def check_usable(where: str | Path) -> None:
    """Open a store for writing and close it again, before anything relies on it.

    Raises
    ------
    StoreError
        It cannot be opened or looked into; the message says what to do.
    """
    with open_store(where, durable=False, shared=True) as store:
        store.jobs()
