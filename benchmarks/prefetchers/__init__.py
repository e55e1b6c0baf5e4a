"""``CudaPrefetcher`` beside what people bring batches to the GPU with today."""
