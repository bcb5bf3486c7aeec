"""What commands write: tables, JSON, progress, and the log of a worker."""
