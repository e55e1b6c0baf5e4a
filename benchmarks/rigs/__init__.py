"""Slow sources, served over FUSE: a hard disk (one arm), and a distant server."""
