"""`queue-report demo`: a month of plausible logs of three hosts. Plain Python: one seed makes the same logs, always.

world.py simulates a queue, places.py says where its mail goes and what is answered, multilog.py writes the directories.
"""
