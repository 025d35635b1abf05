"""Many RLVR jobs share the accelerators of few."""
