"""The tiny network every demo and test starts from: its configuration, tokenizer, folder.

Qwen3 architecture with 0.80 M parameters and 99 character tokens, small enough to learn by
reinforcement within seconds on one core.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
UNKNOWN = "?"
"""Characters outside the vocabulary are read as this one."""

CHARACTERS = (*(chr(code) for code in range(32, 127)), "\n")
"""Printable ASCII and the newline."""


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; no special token is added to a prompt."""
    vocabulary = {token: index for index, token in enumerate((PAD, BOS, EOS, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
    )


def tiny_model(seed: int) -> PreTrainedModel:
    """An untrained network whose weights are a function of the seed."""
    config = Qwen3Config(
        vocab_size=len(CHARACTERS) + 3,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def random_base(folder: str | Path, seed: int = 0) -> str:
    """Write an untrained tiny model folder, for tests; returns its path."""
    tiny_model(seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)
