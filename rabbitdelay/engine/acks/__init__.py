"""Acks and nacks of a consuming connection: buffered, sent together, and proven."""
