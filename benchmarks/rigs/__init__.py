"""Slow sources, served over FUSE: a disk with one arm, and a server far away."""
