"""What `python3 -m spark` runs, and spark-submit, which takes only files whose names end in .py."""

import sys

from spark.main import main

sys.exit(main(sys.argv))
