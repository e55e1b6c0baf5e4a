"""Is this host ready to feed its GPUs? The checks, their report, and its formats."""
