"""The rule engine: loads rule files, runs their queries in a sandbox and turns rows into findings."""
