"""What an allocator snapshot says: lifetimes, categories, the peak, what keeps segments, other settings."""
