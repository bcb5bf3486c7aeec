"""The nodes of a private broker, and the epmd beside them."""
