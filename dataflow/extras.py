"""Optional libraries: loaded where they are used, and asked for in one clear sentence."""

from __future__ import annotations

import importlib
from types import ModuleType

from dataflow.errors import MissingExtraError


def load_extra(module: str, extra: str, purpose: str) -> ModuleType:
    """A module of an optional library.

    Parameters
    ----------
    module
        Name to import.
    extra
        Extra of the distribution ``plexrl`` that installs it.
    purpose
        What needs it, for the message.

    Raises
    ------
    MissingExtraError
        It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs the library {module.partition('.')[0]!r}, which cannot be imported "
            f"({error}); install it with: pip install 'plexrl[{extra}]'"
        ) from error
