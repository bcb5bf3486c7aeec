"""The routes, which translate requests into calls of the gateway."""
