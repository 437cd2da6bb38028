"""Both revisions of a script side by side: checked out, run in turns, compared, with the repository left as it is."""
