"""A simulated cluster: everything is real but the workers, which answer after drawn durations.

Scheduler, plugin, drivers, graphs, reports and plans are those of production; `worker` is the seam.
In real time it loads a scheduler with hundreds of groups (`benchmarks.scenarios.scale`); under the
event loop of `timewarp` hours pass in seconds, in the same order every time (tests).
"""
