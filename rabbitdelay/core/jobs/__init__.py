"""Jobs as values: validation, ids, bodies, and the message that carries a job."""
