"""Pop: reserving jobs for callers, one or several at a time."""
