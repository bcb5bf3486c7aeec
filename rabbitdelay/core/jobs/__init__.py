"""Jobs as values: validation, ids, bodies, headers, states, and the message that carries a job."""
