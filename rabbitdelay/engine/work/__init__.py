"""Run handlers: a worker, from a prefetched delivery to the outcome of its job."""
