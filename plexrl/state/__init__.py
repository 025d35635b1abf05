"""Keeps states in tiers: arenas in host memory, Zarr on disk."""
