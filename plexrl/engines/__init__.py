"""Compute: what runs an LLM function for one architecture."""
