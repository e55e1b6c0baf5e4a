"""What the tests and the benchmarks need of a machine, and share nothing with hostprep itself."""
