"""Long polls: clients that wait for a job."""
