"""Pure tables and values: no I/O, no threads."""
