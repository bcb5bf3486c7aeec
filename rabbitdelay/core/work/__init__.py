"""Running jobs: the order in which they start, the arguments of handlers, and retries."""
