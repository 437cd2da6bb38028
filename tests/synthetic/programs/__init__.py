"""Training scripts for the synthetic machine, in pairs: `problem` and `healthy`."""
