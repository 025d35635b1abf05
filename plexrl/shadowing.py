"""`solver` and `dataflow` are plain words: makes sure that those we import are ours."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_GENERIC = ("solver", "dataflow")


def check(home: Path | None = None) -> None:
    """Check that our neighbours in site-packages are the ones that get imported.

    Nothing is imported by the check itself: a foreign module must not run first.

    Parameters
    ----------
    home
        Folder that holds the three packages; by default the one `plexrl` lies in.

    Raises
    ------
    ImportError
        Another `solver` or `dataflow` comes first; the message names its file.
    """
    home = home or Path(__file__).resolve().parents[1]
    for name in _GENERIC:
        expected = home / name / "__init__.py"
        found = _origin(name)
        if found is None or Path(found).resolve() != expected.resolve():
            raise ImportError(
                f"plexrl needs its own package {name!r} at {expected.parent}, but Python finds "
                f"{found or 'nothing'} instead. Rename or remove that file, or start Python from "
                "another folder (the working directory and PYTHONPATH come before installed "
                "packages)."
            )


def _origin(name: str) -> str | None:
    """File, or folder of a package without ``__init__``, that ``import name`` means."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) or f"a module made at run time, {name}"
    spec = find_spec(name)
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)
