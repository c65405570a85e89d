"""What the mesh costs, measured: each module is a benchmark, run as `python -m benchmarks.<module>`."""
