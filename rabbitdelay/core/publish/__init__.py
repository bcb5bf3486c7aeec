"""Messages between a put and the broker's confirm."""
