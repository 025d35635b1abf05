"""A cluster mutes the handler that Dask made, and no other one."""

import logging
import sys

import dask.config
import pytest

from plexrl.runtime.hush import dask_handlers, hushed


class Kept(logging.StreamHandler):
    """A handler of the program, which keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.fixture
def handlers():
    """Dask's own handler, as it makes it, and one of the program beside it."""
    own = logging.StreamHandler()
    own.setFormatter(logging.Formatter(dask.config.get("distributed.admin.log-format")))
    ours = Kept()
    logger = logging.getLogger("distributed")
    for handler in (own, ours):
        logger.addHandler(handler)
    yield own, ours
    for handler in (own, ours):
        logger.removeHandler(handler)


def test_handlers_of_the_program_go_on_while_dasks_own_is_mute(handlers):
    own, ours = handlers
    assert dask_handlers()[-1] is own
    logger = logging.getLogger("distributed.worker")
    with hushed():
        logger.critical("compute failed")
    assert ours.texts == ["compute failed"]
    assert (own.level, ours.level) == (logging.NOTSET, logging.NOTSET)


def test_clusters_that_overlap_leave_the_handler_as_it_was(handlers, capsys):
    own, _ = handlers
    own.setStream(sys.stderr)
    record = logging.makeLogRecord({"msg": "said", "levelno": logging.WARNING})
    first, second = hushed(), hushed()
    first.__enter__()
    second.__enter__()
    own.handle(record)
    first.__exit__(None, None, None)
    own.handle(record)
    assert capsys.readouterr().err == ""
    second.__exit__(None, None, None)
    own.handle(record)
    assert "said" in capsys.readouterr().err
