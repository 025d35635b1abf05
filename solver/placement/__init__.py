"""Places jobs on groups."""
