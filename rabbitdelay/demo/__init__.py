"""The demo: the order-close story, live, on a private broker.

story       who orders what, and how long they have to pay
theatre     the private broker it plays on
shop        the customers, who put, delete and reschedule jobs, and the worker, who receives them
scoreboard  what has arrived, how late, and whether all is as it must be
stage       what the audience sees
performance the whole evening
"""
