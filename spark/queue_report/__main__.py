"""What `python3 -m queue_report` runs, and spark-submit, which takes only files whose names end in .py."""

import sys

from queue_report.main import main

sys.exit(main(sys.argv))
