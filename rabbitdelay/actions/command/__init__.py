"""Run a shell command for each job."""
