"""Describes iterations: phases, graphs, rewards and advantages as Dask nodes."""
