"""POST each job to a URL."""
