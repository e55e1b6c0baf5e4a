"""A training as people find it, and with what hostprep says: what the GPU does meanwhile."""
