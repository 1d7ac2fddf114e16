"""`python -m dralab` is the command `dralab`."""

import os
import sys

# `python -m` puts the working directory first: its select.py or json.py would be taken for Python's
# own. The script `dralab` does not look there, so this does not either, unless dralab lies there.
HERE = os.getcwd()  # noqa: PTH109 - pathlib would be imported from there
if sys.path[:1] == [HERE] and not os.path.isdir(os.path.join(HERE, "dralab")):  # noqa: PTH112, PTH118 - as above
    del sys.path[0]

from dralab.cli.main import main  # noqa: E402 - after the path is mended

if __name__ == "__main__":
    main()
