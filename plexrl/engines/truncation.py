"""Top-k and top-p: which tokens may be drawn at all.

Shape letters: B rows, V vocabulary.
"""

from __future__ import annotations

import torch


def truncate(scaled_BV: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Logits of the distribution that is left, with -inf for tokens that may not be drawn.

    First the `top_k` likeliest tokens are kept (Fan et al., arXiv 1805.04833), with those that tie
    with the last of them; then, of what is left, the fewest likeliest tokens whose probabilities
    reach `top_p` (nucleus sampling: Holtzman et al., arXiv 1904.09751). No row depends on another.

    Parameters
    ----------
    scaled_BV
        Logits ÷ temperature, shape (B, V).
    top_k
        0 keeps all tokens.
    top_p
        In (0, 1]; 1 keeps all tokens.
    """
    if 0 < top_k < scaled_BV.shape[-1]:
        least_B1 = scaled_BV.topk(top_k, dim=-1).values[:, -1:]
        scaled_BV = scaled_BV.masked_fill(scaled_BV < least_B1, -torch.inf)
    if top_p < 1:
        sorted_BV, order_BV = scaled_BV.sort(dim=-1, descending=True, stable=True)
        probs_BV = sorted_BV.softmax(-1, dtype=torch.float64)
        # What is likelier than a token decides on it: so the likeliest one always stays.
        before_BV = probs_BV.cumsum(-1) - probs_BV
        is_out_BV = torch.zeros_like(order_BV, dtype=torch.bool)
        is_out_BV.scatter_(-1, order_BV, before_BV >= top_p)
        scaled_BV = scaled_BV.masked_fill(is_out_BV, -torch.inf)
    return scaled_BV
