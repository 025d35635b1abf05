"""One module per benchmark; each has ``run(quick, progress) -> BenchmarkResult``."""
