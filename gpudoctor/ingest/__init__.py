"""Turns raw artifacts into the tables of a Profile: one module a format. Needs neither torch nor a GPU."""
