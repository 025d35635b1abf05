"""What a Hugging Face model folder is, found out without loading torch: a check at submit."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dataflow.lora import LoraSpec
from plexrl.core.layout import ROLE_OPTIMIZER, ROLE_WEIGHTS, pack
from plexrl.engines.adapters import adapter_shapes
from plexrl.errors import ModelFolderError

COMPUTE_DTYPE = "float32"
"""Dtype of resident weights and optimizer moments, whatever the folder stores."""

HEAD_LM = "lm"
HEAD_VALUE = "value"
VALUE_HEADS = ("score", "classifier")
"""Modules that `transformers` calls the head of a token classification model."""

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_WEIGHTS_INDEX = "model.safetensors.index.json"
_TOKENIZER = "tokenizer.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_MAX_HEADER_BYTES = 100_000_000
"""Longest safetensors header the format allows."""

_VOLATILE_CONFIG = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
)
"""Configuration fields that say nothing about the resident network."""


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """What a light look at a model folder tells."""

    folder: str
    """Absolute path."""
    model_type: str
    """``model_type`` of config.json, e.g. ``qwen3``."""
    shapes: Mapping[str, tuple[int, ...]]
    """Stored tensor → shape."""
    stored_bytes: int
    """Bytes of all stored tensors."""
    num_parameters: int
    """Elements of all trainable tensors, tied ones once."""


def check_folder(path: str | Path) -> FolderFacts:
    """Check that a folder holds a model an engine can load, without loading it.

    Raises
    ------
    ModelFolderError
        The folder or a needed file is missing or unreadable, or the tokenizer is that of another
        model; the message names it.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ModelFolderError(
            f"model folder {str(path)!r} does not exist; give the path of a Hugging Face folder "
            f"with {_CONFIG}, {_WEIGHTS} and {_TOKENIZER}"
        )
    config = _read_json(folder / _CONFIG)
    _check_vocabulary(folder, config.get("vocab_size"), _read_json(folder / _TOKENIZER))
    if "model_type" not in config:
        raise ModelFolderError(
            f"{folder / _CONFIG} has no 'model_type'; save the model with `save_pretrained`"
        )
    shapes: dict[str, tuple[int, ...]] = {}
    stored_bytes = 0
    for file in _weight_files(folder):
        for name, (shape, nbytes) in _read_header(file).items():
            shapes[name] = shape
            stored_bytes += nbytes
    if config.get("tie_word_embeddings", False):
        shapes.pop("lm_head.weight", None)
    num_parameters = sum(_num_elements(shape) for shape in shapes.values())
    return FolderFacts(
        str(folder.resolve()), str(config["model_type"]), shapes, stored_bytes, num_parameters
    )


def _check_vocabulary(folder: Path, vocab_size: object, tokenizer: Mapping[str, object]) -> None:
    """Raise if the tokenizer has a token that the network has no embedding for."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    added = tokenizer.get("added_tokens")
    ids = [token["id"] for token in added] if isinstance(added, list) else []
    if isinstance(vocabulary, Mapping):
        ids += vocabulary.values()
    elif isinstance(vocabulary, list):
        ids.append(len(vocabulary) - 1)
    if ids and isinstance(vocab_size, int) and max(ids) >= vocab_size:
        raise ModelFolderError(
            f"the tokenizer of model folder {str(folder)!r} has the token id {max(ids)}, but the "
            f"network has embeddings for {vocab_size} tokens; take the tokenizer that belongs to "
            "the model, or resize its embeddings (`resize_token_embeddings`) and save both"
        )


def architecture_key(
    folder: str | Path,
    is_trainable: bool = True,
    head: str = HEAD_LM,
    lora: LoraSpec | None = None,
) -> str:
    """Key of the resident network a folder needs: equal keys can share one engine.

    It covers the configuration, the tokenizer, the head and whether there is an optimizer, not
    the weights; where adapters are trained over frozen weights, these and the adapters' kind too.

    Raises
    ------
    ModelFolderError
        The folder is not a usable model folder.
    """
    root = Path(check_folder(folder).folder)
    stamp = tuple(
        (name, (root / name).stat().st_mtime_ns if (root / name).exists() else 0)
        for name in (_CONFIG, _TOKENIZER, _TOKENIZER_CONFIG)
    )
    key = _architecture_key(root, stamp, is_trainable, head)
    if lora is None:
        return key
    weights = [
        (str(file), (stat := file.stat()).st_mtime_ns, stat.st_size) for file in _weight_files(root)
    ]
    return hashlib.sha256(repr((key, weights, lora)).encode()).hexdigest()[:16]


def state_bytes(
    folder: str | Path,
    is_trainable: bool = True,
    head: str = HEAD_LM,
    lora: LoraSpec | None = None,
) -> int:
    """Bytes of a state of the folder's model, as an engine lays it out.

    Raises
    ------
    ModelFolderError
        The folder is not a usable model folder.
    """
    facts = check_folder(folder)
    shapes = _value_shapes(facts) if head == HEAD_VALUE else facts.shapes
    if lora is not None:
        shapes = adapter_shapes(facts.folder, shapes, lora)
    return pack(state_slots(shapes, is_trainable)).nbytes


def _value_shapes(facts: FolderFacts) -> dict[str, tuple[int, ...]]:
    """Shapes with one number per position as the output, in place of logits."""
    body = {
        name: shape
        for name, shape in facts.shapes.items()
        if name.rpartition(".")[0] not in {"lm_head", *VALUE_HEADS}
    }
    config = _read_json(Path(facts.folder) / _CONFIG)
    width = config.get("hidden_size", config.get("n_embd"))
    if not isinstance(width, int):
        raise ModelFolderError(
            f"{Path(facts.folder) / _CONFIG} names no hidden_size, which a value head needs; take "
            "another model as the critic"
        )
    return {**body, "score.weight": (1, width), "score.bias": (1,)}


def state_slots(
    shapes: Mapping[str, tuple[int, ...]], is_trainable: bool
) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """Rows for `plexrl.core.layout.pack`: weights, then both moments, then the step count.

    Weights, first and second moments are three regions of equal inner layout, so that an
    optimizer can treat each as one flat tensor.
    """
    rows = [(name, ROLE_WEIGHTS, COMPUTE_DTYPE, shape) for name, shape in shapes.items()]
    if is_trainable:
        for moment in ("exp_avg", "exp_avg_sq"):
            rows += [
                (f"{moment}/{name}", ROLE_OPTIMIZER, COMPUTE_DTYPE, shape)
                for name, shape in shapes.items()
            ]
        rows.append(("step", ROLE_OPTIMIZER, "float32", ()))
    return rows


@lru_cache(maxsize=256)
def _architecture_key(root: Path, _stamp: object, is_trainable: bool, head: str) -> str:
    config = {k: v for k, v in _read_json(root / _CONFIG).items() if k not in _VOLATILE_CONFIG}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    digest.update((root / _TOKENIZER).read_bytes())
    if (root / _TOKENIZER_CONFIG).exists():
        digest.update((root / _TOKENIZER_CONFIG).read_bytes())
    digest.update(b"trainable" if is_trainable else b"frozen")
    if head != HEAD_LM:
        digest.update(head.encode())
    return digest.hexdigest()[:16]


def _weight_files(folder: Path) -> list[Path]:
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if not (folder / _WEIGHTS_INDEX).is_file():
        raise ModelFolderError(
            f"model folder {str(folder)!r} has no {_WEIGHTS} (nor {_WEIGHTS_INDEX}); save the "
            "model with `save_pretrained`"
        )
    weight_map = _read_json(folder / _WEIGHTS_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFolderError(
            f"{folder / _WEIGHTS_INDEX} has no 'weight_map'; save the model with `save_pretrained`"
        )
    return [folder / name for name in sorted(set(weight_map.values()))]


def _read_json(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFolderError(
            f"model folder {str(path.parent)!r} has no {path.name}; save model and tokenizer with "
            "`save_pretrained`"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict):
        raise ModelFolderError(f"{path} holds {type(data).__name__}, not a JSON object")
    return data


def _read_header(path: Path) -> dict[str, tuple[tuple[int, ...], int]]:
    """Tensor → (shape, stored bytes), from the header of a safetensors file."""
    remedy = "the file is damaged or not safetensors; save the model again"
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER_BYTES:
                raise ModelFolderError(f"{path} claims a header of {length} bytes: {remedy}")
            header = json.loads(file.read(length))
        rows = {
            name: (tuple(row["shape"]), row["data_offsets"][1] - row["data_offsets"][0])
            for name, row in header.items()
            if name != "__metadata__"
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelFolderError(f"{path} cannot be read ({error}): {remedy}") from error
    expected = 8 + length + sum(nbytes for _, nbytes in rows.values())
    if path.stat().st_size < expected:
        raise ModelFolderError(
            f"{path} has {path.stat().st_size} bytes, its header promises {expected}: {remedy}"
        )
    return rows


def _num_elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
