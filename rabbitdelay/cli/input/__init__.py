"""Input of the commands: files, jobs, answers to questions."""
