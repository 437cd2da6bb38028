"""A model of torch's CUDA caching allocator: places recorded allocations anew, also under other settings."""
