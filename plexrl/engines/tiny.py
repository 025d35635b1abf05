"""The warmed-up tiny base model, built once and kept in a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

from plexrl.engines.child_environment import child_command, child_environment
from plexrl.engines.folders import check_folder
from plexrl.engines.warmup_settings import WarmupSettings
from plexrl.errors import ConfigError, EngineError

Progress = Callable[[int, int, float], None]
"""Called with steps done, steps in all, loss (nats a token)."""

KINDS: Mapping[str, WarmupSettings] = MappingProxyType(
    dict.fromkeys(("tiny", "letters", "calculator"), WarmupSettings())
)
"""Kind → what it is warmed up with. One base serves every built-in task (measured: it starts at the
rewards a base of its own starts at), so the kinds that tasks name all stand for it."""

LINES = 5
"""Lines that a build prints where nobody else shows its progress: one every dozen seconds."""


def tiny_base(
    kind: str = "tiny",
    seed: int = 0,
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
    settings: WarmupSettings | None = None,
) -> str:
    """Folder of the warmed-up tiny base model; built in a child process at the first call.

    Parameters
    ----------
    kind
        A name in `KINDS`.
    seed
        Seed of weights and demonstrations.
    cache_dir
        Where built models are kept; by default ``plexrl/models`` in the user's cache folder
        (``XDG_CACHE_HOME``, else ``~/.cache``).
    progress
        Told about every step of a build, not called if the model is in the cache; by default a few
        lines on standard error, as a build takes a minute.
    settings
        Replaces the settings of the kind, seed included; for experiments and tests.

    Returns
    -------
    str
        Path of a Hugging Face folder, the same for the same arguments and torch version.

    Raises
    ------
    ConfigError
        The kind is unknown, or the cache cannot be written.
    EngineError
        The build failed.
    """
    chosen = settings or _settings_of(kind, seed)
    root = Path(cache_dir) if cache_dir is not None else _default_cache()
    target = root / f"tiny-{_fingerprint(chosen)}"
    if target.exists():
        check_folder(target)
        return str(target)
    try:
        root.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=".tiny-", dir=root))
    except OSError as error:
        raise ConfigError(
            f"the model cache {str(root)!r} cannot be written ({error}); give another cache_dir or "
            "set XDG_CACHE_HOME"
        ) from error
    try:
        _build(unfinished, chosen, progress or _tell)
        _publish(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return str(target)


def _tell(done: int, total: int, _loss: float) -> None:
    if done == 1 or done % max(1, total // LINES) == 0:
        sys.stderr.write(f"warming up the tiny base model, once: step {done} of {total}\n")
        sys.stderr.flush()


def _settings_of(kind: str, seed: int) -> WarmupSettings:
    if kind not in KINDS:
        raise ConfigError(f"no tiny base is called {kind!r}; known are {', '.join(sorted(KINDS))}")
    return KINDS[kind].with_seed(seed)


def _default_cache() -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache_home) if cache_home else Path.home() / ".cache") / "plexrl" / "models"


def _fingerprint(settings: WarmupSettings) -> str:
    """Names everything the weights depend on."""
    parts = (settings.to_json(), version("torch"), version("transformers"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _build(folder: Path, settings: WarmupSettings, progress: Progress) -> None:
    command = child_command("plexrl.engines.warmup", str(folder), settings.to_json())
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment(),
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                done, total, loss = line.split()
                progress(int(done), int(total), float(loss))
            status = process.wait()
        finally:
            process.kill()
        if status != 0:
            errors.seek(0)
            raise EngineError(
                f"the warm-up of the tiny base ended with status {status}:\n"
                f"{errors.read().decode(errors='replace')[-4000:]}"
            )


def _publish(unfinished: Path, target: Path) -> None:
    unfinished.chmod(0o755)
    try:
        unfinished.rename(target)
    except OSError:
        # Another process built the same model meanwhile: equal settings, equal bytes.
        if not target.exists():
            raise
