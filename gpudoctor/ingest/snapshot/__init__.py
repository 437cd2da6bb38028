"""The CUDA allocator's own record: pickles that `torch.cuda.memory._dump_snapshot` writes."""
