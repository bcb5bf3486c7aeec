"""Where jobs wait: the ladder of hold queues, the queues of topics, and how they are declared."""
