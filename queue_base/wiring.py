"""What queue-start hands to queue-send: descriptors, and signals. Every other daemon has its pipe on 0 and 1.

The lock's descriptor is shared with queue-todo and queue-clean: as long as one of those who change
the queue lives, no second set can start.
"""

import signal

# Blocked by queue-start, so that one that comes before queue-send can obey it neither kills nor is lost.
KEPT_SIGNALS = (signal.SIGHUP, signal.SIGALRM)

LOCAL_JOBS = 3
LOCAL_REPORTS = 4
REMOTE_JOBS = 5
REMOTE_REPORTS = 6
CLEAN_IDS = 7
CLEAN_ANSWERS = 8
TODO_COMMANDS = 9
TODO_NOTICES = 10
# Nothing is written there; its end is what tells queue-pickup to end.
PICKUP_LIFE = 11
PICKUP_NOTICES = 12
SENDMUTEX = 13
