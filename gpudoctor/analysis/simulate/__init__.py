"""Replays the profiled steps with a fix applied: what a finding is worth, and what the step's time hangs on."""
