"""What CUDA's libraries say when memory runs out."""

from __future__ import annotations


def lacks_memory(error: Exception) -> bool:
    """Return whether an error says that memory ran out, the device's or page-locked memory.

    Judged by the text: torch has a class only for its caching allocator. Errors from the driver,
    when locking pages, and from cuBLAS and cuDNN, which allocate by themselves, come as any other
    RuntimeError. cuDNN 9 has names of its own (cudnn_graph.h): ...HOST_ALLOCATION_FAILED,
    ...DEVICE_...
    """
    words = ("out of memory", "STATUS_ALLOC_FAILED", "_ALLOCATION_FAILED")
    return isinstance(error, RuntimeError) and any(each in str(error) for each in words)
