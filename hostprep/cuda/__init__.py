"""The CUDA prefetcher that users may import, and the smoke test that checks it."""

from hostprep.cuda.prefetcher import CudaPrefetcher

__all__ = ["CudaPrefetcher"]
