"""Reads files people write: regular files only, as far as they may be long, no key twice."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import yaml

MAX_FILE_BYTES = 64 * 2**20
"""Largest file read: a hundred thousand jobs take less."""


MAX_VALUES = 10**7
"""Most values of a file; aliases of YAML could make any number of a few lines."""


class UnreadableError(ValueError):
    """A file, or what is in it, cannot be read; the message says why and what to do."""


class UniqueKeys(yaml.SafeLoader):
    """YAML's safe loader, which takes no key twice: the first value would be lost in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping.

        Raises
        ------
        yaml.YAMLError
            A key stands in it twice.
        """
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"key {key.value!r} stands there twice; leave one of them out",
                        problem_mark=key.start_mark,
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_text(path: Path) -> str:
    """Text of a file.

    Raises
    ------
    UnreadableError
        It is none, too large, or no UTF-8.
    """
    try:
        found = path.stat()
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            # Pipes and devices may never end.
            raise UnreadableError("cannot be read (it is no regular file); give a file")
        if found.st_size > MAX_FILE_BYTES:
            raise UnreadableError(f"has over {MAX_FILE_BYTES >> 20} MiB; give a smaller file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableError(f"cannot be read ({error.strerror}); check the name") from error
    except UnicodeDecodeError as error:
        raise UnreadableError("is not UTF-8 text; give YAML or JSON") from error


def parse(text: str) -> object:
    """What YAML or JSON text holds, as a tree: a value met twice stands there twice.

    Raises
    ------
    UnreadableError
        It is neither, takes a key twice, or has text that no file can hold.
    """
    try:
        found = _tree(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UnreadableError(f"is neither YAML nor JSON{place}: {reason}") from error
    if _num_values(found) > MAX_VALUES:
        raise UnreadableError(
            f"holds over {MAX_VALUES // 10**6} million values with its aliases written out; give "
            "fewer"
        )
    if (half := _half_character(text, found)) is not None:
        raise UnreadableError(
            f"has half a character (a surrogate) in {half.encode('utf-8', 'backslashreplace')!r}; "
            "write the whole one"
        )
    return found


def _tree(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except json.JSONDecodeError:
            # A mapping of YAML may begin so, too.
            pass
    return yaml.load(text, Loader=UniqueKeys)  # noqa: S506


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"key {key!r} stands there twice; leave one of them out")
        seen[key] = value
    return seen


def _num_values(value: object) -> int:
    """Values that a tree holds with every alias written out.

    Raises
    ------
    UnreadableError
        A list or mapping is within itself, as YAML's aliases allow.
    """
    counts: dict[int, int] = {}
    open_: set[int] = set()
    pending = [value]
    while pending:
        entry = pending[-1]
        if not isinstance(entry, dict | list) or id(entry) in counts:
            pending.pop()
            continue
        held = entry.values() if isinstance(entry, dict) else entry
        if id(entry) not in open_:
            open_.add(id(entry))
            inner = [e for e in held if isinstance(e, dict | list) and id(e) not in counts]
            if any(id(e) in open_ for e in inner):
                raise UnreadableError("has an alias that holds itself; write it out")
            pending.extend(inner)
            continue
        counts[id(entry)] = 1 + sum(counts.get(id(e), 1) for e in held)
        open_.discard(id(entry))
        pending.pop()
    return counts.get(id(value), 1)


def _half_character(text: str, found: object) -> str | None:
    """A string with a surrogate, which only an escape can make; none can be written anywhere."""
    if "\\u" not in text and "\\U" not in text:
        return None
    seen: set[int] = set()
    pending = [found]
    while pending:
        entry = pending.pop()
        if isinstance(entry, str):
            if any("\ud800" <= character <= "\udfff" for character in entry):
                return entry
        elif isinstance(entry, dict | list) and id(entry) not in seen:
            seen.add(id(entry))
            pending.extend([*entry, *entry.values()] if isinstance(entry, dict) else entry)
    return None
