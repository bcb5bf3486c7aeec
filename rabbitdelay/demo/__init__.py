"""The demo: the order-close story, live, on a private broker.

story       who orders what, and how long they have to pay
theatre     the private broker it plays on
shop        the customers, who put jobs, and the worker, who receives them
scoreboard  what has arrived, how late, and whether anything is early, lost or doubled
stage       what the audience sees
performance the whole evening
"""
