"""Text to tokens and back, and where a drawn token ends a turn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer, GenerationConfig

from plexrl.errors import ModelFolderError

_UNFINISHED_CHAR = "\N{REPLACEMENT CHARACTER}"
"""What a token that holds part of a character decodes to."""


class TextCodec:
    """Tokenizer of a model folder.

    Raises
    ------
    ModelFolderError
        The tokenizer cannot be loaded, or has no end-of-sequence token.
    """

    def __init__(self, folder: str, vocab_size: int) -> None:
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:
            # The library of tokenizers raises nothing more precise on a file it cannot read.
            raise ModelFolderError(
                f"model folder {folder!r} has no usable tokenizer: {error}; save the model's own "
                "with `save_pretrained`"
            ) from error
        self.vocab_size = vocab_size
        self.eos_ids = self._find_eos(folder)
        self.is_eos = np.zeros(vocab_size, dtype=bool)
        self.is_eos[list(self.eos_ids)] = True
        self._pieces: list[str] | None = None
        self._candidates: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def encode(self, text: str, *, is_start: bool) -> tuple[int, ...]:
        """Tokens of a text; special tokens are added at the start of a prompt only.

        A prompt that begins with the first of them, as one from a chat template does, gets no
        second one.
        """
        first = self.tokenizer.bos_token
        is_plain = is_start and not (first and text.startswith(first))
        return tuple(self.tokenizer.encode(text, add_special_tokens=is_plain))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        text: str = self.tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def may_end(self, stop: tuple[str, ...]) -> NDArray[np.bool_]:
        """Per token whether drawing it may complete one of the stop texts, shape (vocab,)."""
        if stop not in self._candidates:
            ends = {text[-1] for text in stop} | {_UNFINISHED_CHAR}
            self._candidates[stop] = np.array(
                [any(end in piece for end in ends) for piece in self._all_pieces()], dtype=bool
            )
        return self._candidates[stop]

    def _all_pieces(self) -> list[str]:
        if self._pieces is None:
            self._pieces = [self.decode([token]) for token in range(self.vocab_size)]
        return self._pieces

    def _find_eos(self, folder: str) -> frozenset[int]:
        found: set[int] = set()
        if self.tokenizer.eos_token_id is not None:
            found.add(int(self.tokenizer.eos_token_id))
        if (Path(folder) / "generation_config.json").exists():
            try:
                eos = GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id
            except (OSError, ValueError, TypeError) as error:
                raise ModelFolderError(
                    f"model folder {folder!r} has a generation_config.json that cannot be read: "
                    f"{error}; save it again, or remove it"
                ) from error
            if eos is not None:
                found.update(eos if isinstance(eos, list) else [eos])
        usable = frozenset(token for token in found if 0 <= token < self.vocab_size)
        if not usable:
            raise ModelFolderError(
                f"the tokenizer of {folder!r} has no end-of-sequence token below the vocabulary "
                f"size {self.vocab_size}, so no completion could ever stop; set 'eos_token' in "
                "tokenizer_config.json"
            )
        return usable
