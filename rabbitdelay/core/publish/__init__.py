"""Messages between a put and the broker's confirm: in flight, backed off, or sent again."""
