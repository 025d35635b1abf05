"""A key-value cache of fixed capacity: a decode step writes in place instead of growing.

Shape letters: B rows, H key-value heads, T positions, D head dimension.
"""

from __future__ import annotations

import torch
from transformers import PretrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin

MAX_BYTES = 2**30
"""Most memory the cache of one decode batch takes (float32)."""

MAX_ROWS = 512
"""Most rows of one decode batch; more gain nothing."""


class FixedLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, allocated once for all positions of a decode batch."""

    is_sliding = False
    """The whole history is kept; a sliding window is a matter of the mask."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate for the shapes (B, H, ·, D) that the first forward brings."""
        rows, heads, _, key_dim = key_states.shape
        self.keys = key_states.new_empty(rows, heads, self.capacity, key_dim)
        self.values = value_states.new_empty(rows, heads, self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_args: object,
        **_kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (B, H, t, D) and return views of everything so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start, self.length = self.length, self.length + key_states.shape[-2]
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys a query of `query_length` sees."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Positions written so far."""
        return self.length

    def get_max_length(self) -> int:
        """Positions there is room for."""
        return self.capacity

    def take_rows(self, rows_B: torch.Tensor) -> None:
        """Keep, reorder or repeat rows."""
        self.keys = self.keys.index_select(0, rows_B)
        self.values = self.values.index_select(0, rows_B)


def new_cache(num_layers: int, capacity: int) -> Cache:
    """An empty cache of `num_layers` layers with room for `capacity` positions."""
    return Cache(layers=[FixedLayer(capacity) for _ in range(num_layers)])


def take_rows(cache: Cache, rows_B: torch.Tensor) -> None:
    """Keep, reorder or repeat rows in every layer."""
    for layer in cache.layers:
        layer.take_rows(rows_B)


def rows_that_fit(config: PretrainedConfig, capacity: int) -> int:
    """Rows of `capacity` positions that a decode batch may have."""
    num_heads = config.num_attention_heads
    num_key_heads = getattr(config, "num_key_value_heads", None) or num_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // num_heads
    row_bytes: int = 2 * 4 * config.num_hidden_layers * num_key_heads * head_dim * capacity
    return max(1, min(MAX_ROWS, MAX_BYTES // row_bytes))
