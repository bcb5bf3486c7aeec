"""The queues in which jobs wait: hold queues, queues of topics, and how they are declared."""
