"""One module per benchmark; each has ``run(quick) -> benchmarks.result.BenchmarkResult``."""
