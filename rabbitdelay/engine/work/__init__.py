"""The worker: running handlers, from a prefetched delivery to the outcome of its job."""
