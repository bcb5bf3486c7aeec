"""The demo: a shop that closes unpaid orders, live, on a private broker.

orders         the orders, and the job of each one
broker         the private broker
shop           customers that put, delete and reschedule jobs, and a worker that processes them
scoreboard     the arrivals, their lateness, and whether all jobs behaved as expected
summary        the final report
display        the output on a terminal or in a file
demonstration  the whole demo
"""
