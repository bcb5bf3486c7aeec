"""Administration: counts, namespaces, definitions, verification and policies."""
