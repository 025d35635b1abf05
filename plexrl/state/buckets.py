"""The only place that knows obstore: objects by URL in S3, Google Cloud, Azure or memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from plexrl.errors import StoreAwayError, StoreError


def _obstore() -> Any:  # noqa: ANN401
    try:
        importlib.import_module("obstore.store")
        importlib.import_module("obstore.exceptions")
        return importlib.import_module("obstore")
    except ImportError as error:
        raise StoreError(
            "a store at a URL needs the package obstore: pip install 'plexrl[remote]'"
        ) from error


_MAX_RETRIES = 5
RETRY_TIMEOUT = timedelta(seconds=20)
"""No request is tried again after this: who waits can do better than wait for minutes."""


def _brief(error: Exception) -> str:
    """The first line: the library adds the whole chain of causes."""
    return str(error).partition("\n")[0].rstrip(" :;")


class Bucket:
    """Objects below a URL; thin, so that faults of the network have one place.

    Parameters
    ----------
    url
        E.g. ``s3://bucket/prefix``, ``gs://…``, ``az://…`` or ``memory://``.
    options
        Of obstore for that service, e.g. ``{"region": "…", "endpoint": "…"}``; what is not
        given comes from the environment, as the service's own tools read it.

    Raises
    ------
    StoreError
        obstore is not installed, or it does not take the URL or an option.
    """

    def __init__(self, url: str, options: Mapping[str, str]):
        self.url = url.rstrip("/")
        self._obstore = _obstore()
        http = str(options.get("endpoint", "")).startswith("http://")
        settings: dict[str, object] = {}
        if not url.startswith("memory:"):
            settings["retry_config"] = {"max_retries": _MAX_RETRIES, "retry_timeout": RETRY_TIMEOUT}
        if http:
            settings["client_options"] = {"allow_http": True}
        if options:
            settings["config"] = dict(options)
        try:
            self._store = self._obstore.store.from_url(url, **settings)
        except (self._obstore.exceptions.BaseError, ValueError, TypeError) as error:
            raise StoreError(
                f"no store can be opened at {url}: {_brief(error)}; give s3://, gs:// or az:// "
                "with a bucket, and options that service knows"
            ) from error

    @contextmanager
    def errors(self, action: str, key: str) -> Iterator[None]:
        """Turn an error of the service inside the block into one `StoreAwayError`."""
        kinds = self._obstore.exceptions
        try:
            yield
        except kinds.AlreadyExistsError as error:
            raise FileExistsError(key) from error
        except (kinds.NotFoundError, FileNotFoundError) as error:
            raise FileNotFoundError(key) from error
        except (kinds.BaseError, OSError) as error:
            raise StoreAwayError(
                f"cannot {action} {self.url}/{key}: {_brief(error)}; check the URL, the "
                "credentials and the network, then try again"
            ) from error

    def put(self, key: str, content: bytes | memoryview, *, is_new: bool = False) -> None:
        """Write an object whole; `is_new`: only if there is none.

        Raises
        ------
        FileExistsError
            There is one.
        StoreError
            The service refuses.
        """
        mode = "create" if is_new else "overwrite"
        try:
            with self.errors("write", key):
                self._obstore.put(self._store, key, content, mode=mode)
        except FileNotFoundError as error:
            raise StoreError(
                f"cannot write {self.url}/{key}: there is no such bucket; create it, or check the "
                "URL and the endpoint"
            ) from error

    def get(self, key: str) -> memoryview:
        """All bytes of an object.

        Raises
        ------
        FileNotFoundError
            There is none.
        StoreError
            The service refuses.
        """
        return self.get_dated(key)[0]

    def get_dated(self, key: str) -> tuple[memoryview, float]:
        """All bytes of an object and when it was written, in Unix seconds; raises as `get` does."""
        with self.errors("read", key):
            found = self._obstore.get(self._store, key)
            return memoryview(found.bytes()), found.meta["last_modified"].timestamp()

    def get_range(self, key: str, start: int, stop: int) -> memoryview:
        """Some bytes of an object; raises as `get` does."""
        with self.errors("read", key):
            return memoryview(self._obstore.get_range(self._store, key, start=start, end=stop))

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        try:
            with self.errors("look for", key):
                self._obstore.head(self._store, key)
        except FileNotFoundError:
            return False
        return True

    def delete(self, keys: list[str]) -> None:
        """Delete objects; those that are gone are fine."""
        for key in keys:
            try:
                with self.errors("delete", key):
                    self._obstore.delete(self._store, key)
            except FileNotFoundError:
                continue

    def sizes(self, prefix: str) -> dict[str, int]:
        """Key → bytes of all objects below a prefix, in order of key."""
        with self.errors("list", prefix):
            batches = self._obstore.list(self._store, prefix=prefix or None)
            rows = {str(row["path"]): int(row["size"]) for batch in batches for row in batch}
        return dict(sorted(rows.items()))

    def keys(self, prefix: str) -> list[str]:
        """Keys of all objects below a prefix, sorted."""
        return list(self.sizes(prefix))

    def folders(self, prefix: str) -> list[str]:
        """Names one level below a prefix that have objects below them, sorted."""
        with self.errors("list", prefix):
            found = self._obstore.list_with_delimiter(self._store, prefix=prefix or None)
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])
