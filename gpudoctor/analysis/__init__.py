"""Derived tables: pure functions over the tables of a Profile."""
