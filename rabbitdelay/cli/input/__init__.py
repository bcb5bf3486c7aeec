"""What commands read: files, jobs, answers to questions."""
