"""The worker, which runs handlers: from a prefetched delivery to the outcome of its job."""
