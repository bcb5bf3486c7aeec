"""The webhook action: POST each job to a URL."""
