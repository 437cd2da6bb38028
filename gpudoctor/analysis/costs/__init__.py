"""What operators must compute and move, by name: one module a family of operators, used through `flops.py`."""
