"""A store whose disk the test holds still, or breaks."""

from threading import Event, Semaphore

from plexrl.errors import StoreError


class HeldStore:
    """Passes everything on to a real store, once the test lets it."""

    def __init__(self, store):
        self._store = store
        self.may_write = Event()
        self.may_read = Event()
        self.may_write.set()
        self.may_read.set()
        self.is_reading = Event()
        self.failures = Semaphore(0)
        self.num_failures_left = 0
        self.read_error = None

    def __getattr__(self, name):
        return getattr(self._store, name)

    def wait_noted_failure(self):
        """A second failed write has begun, so the first one has been noted."""
        for _ in range(2):
            assert self.failures.acquire(timeout=60)

    def write(self, manifest, view):
        assert self.may_write.wait(60)
        if self.num_failures_left:
            self.num_failures_left -= 1
            self.failures.release()
            raise StoreError("cannot write: the disk is full: free space there")
        return self._store.write(manifest, view)

    def read(self, ref, into):
        self.is_reading.set()
        assert self.may_read.wait(60)
        if self.read_error is not None:
            error, self.read_error = self.read_error, None
            raise error
        return self._store.read(ref, into)
