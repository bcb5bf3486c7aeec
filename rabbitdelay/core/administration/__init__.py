"""Questions of operators: counts, namespaces, definitions, verification and policies."""
