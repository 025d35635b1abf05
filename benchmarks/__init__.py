"""Measures what the project claims, each figure with its command, machine, seed and peers."""
