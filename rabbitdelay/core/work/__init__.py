"""Running jobs: which starts next, what its handler is called with, and what its result means."""
