"""The durable tiers that the conformance suite runs on, each with a way to damage it."""

from contextlib import contextmanager

import pytest

from plexrl.state.folder import MARKER
from plexrl.state.object_store import ObjectStore
from plexrl.state.zarr_store import ZarrStore

CHUNK_BYTES = 4096


class FolderBackend:
    """A local folder."""

    def __init__(self, root):
        self.root = root

    def open(self, *, read_only=False):
        return ZarrStore(
            self.root, durable=False, chunk_bytes=CHUNK_BYTES, shared=True, read_only=read_only
        )

    def mark(self, store, content):
        (store.root / MARKER).write_bytes(content)

    def chunks(self, store, ref):
        folder = store.root / ref.job / ref.model / f"v{ref.version:08d}"
        return sorted(path for path in folder.rglob("*") if path.name.startswith("c."))

    def read(self, _store, chunk):
        return chunk.read_bytes()

    def replace(self, _store, chunk, content):
        if content is None:
            chunk.unlink()
        else:
            chunk.write_bytes(content)


class ObjectBackend:
    """Objects at a URL."""

    def __init__(self, url, options=None):
        self.url = url
        self.options = options

    def open(self, *, read_only=False):
        return ObjectStore(
            self.url, options=self.options, chunk_bytes=CHUNK_BYTES, read_only=read_only
        )

    def mark(self, store, content):
        store._bucket.put(MARKER, content)

    def chunks(self, store, ref):
        keys = store._bucket.keys(f"{ref.job}/{ref.model}/v{ref.version:08d}/")
        return [key for key in keys if "/c." in key]

    def read(self, store, chunk):
        return bytes(store._bucket.get(chunk))

    def replace(self, store, chunk, content):
        if content is None:
            store._bucket.delete([chunk])
        else:
            store._bucket.put(chunk, content)


def object_folder(root):
    """Objects that obstore keeps as files, so that they outlive the store as in a service."""
    root.mkdir()
    return ObjectBackend(root.as_uri())


@contextmanager
def s3_server():
    """URL of an S3-compatible server on loopback, with one bucket."""
    server = pytest.importorskip("moto.server", reason="needs moto[server]")
    boto3 = pytest.importorskip("boto3", reason="needs moto[server]")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket="states")
    try:
        yield endpoint
    finally:
        running.stop()


def s3_options(endpoint):
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "test",
        "virtual_hosted_style_request": "false",
    }
