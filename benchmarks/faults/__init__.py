"""Injects faults into a part of PlexRL and counts what came of them, one module a part."""
