"""Jobs that wait for a person: buried jobs, and jobs that could not be routed."""
