"""``CudaPrefetcher`` compared with the ways that people bring batches to the GPU today."""
