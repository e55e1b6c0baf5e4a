"""What CUDA's libraries say when memory runs out."""

from __future__ import annotations


def lacks_memory(error: Exception) -> bool:
    """Return whether it says that memory was short, the device's or page-locked: no fault of it.

    By its words: torch has a class for its caching allocator alone. What the driver says, who locks
    pages, and cuBLAS and cuDNN, which allocate by themselves, comes as any other RuntimeError.
    cuDNN 9 has names of its own (cudnn_graph.h): ...HOST_ALLOCATION_FAILED, ...DEVICE_...
    """
    words = ("out of memory", "STATUS_ALLOC_FAILED", "_ALLOCATION_FAILED")
    return isinstance(error, RuntimeError) and any(each in str(error) for each in words)
