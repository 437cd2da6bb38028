"""Runs the user's script and writes a Recording. The only part of gpudoctor that imports torch.

Two processes take part. The parent (`launch`) prepares the folder and starts the user's real command with `boot/`
first on PYTHONPATH; the child's interpreter finds `sitecustomize` there, which arms `agent` once torch is imported.
Modules that run in the child use the standard library and torch only.
"""
