"""Send jobs that could not be routed on to their queues."""
