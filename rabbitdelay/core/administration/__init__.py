"""What operators ask: counts, namespaces, definitions, verification and policies."""
