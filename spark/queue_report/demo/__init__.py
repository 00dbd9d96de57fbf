"""`queue-report demo`: a month of plausible logs of three hosts. Plain Python: one seed makes the same logs, always.

world.py simulates a queue, destinations.py says where its mail goes and what is answered there, multilog.py writes the
directories.
"""
