"""Output of the commands: tables, JSON, progress, and the log of a worker."""
