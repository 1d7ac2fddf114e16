"""Controllers of dralab that a cluster has only if asked for, as programs of trials."""

import atexit
import shutil
import tempfile
from ipaddress import IPv4Network
from pathlib import Path

from dralab.controllers.load_balancers import LoadBalancers
from dralab.controllers.volume_folders import VolumeFolders

# For the folders of all trials of this process; it goes when the process ends.
BASE = Path(tempfile.mkdtemp(prefix="dralab-folders-"))
atexit.register(shutil.rmtree, BASE, ignore_errors=True)


class Balancers(LoadBalancers):
    """Two addresses, so that a third Service waits."""

    def __init__(self, manager):
        super().__init__(manager, IPv4Network("10.9.0.0/30"))


class Folders(VolumeFolders):
    """Folders below one that is made for the tests."""

    def __init__(self, manager):
        super().__init__(manager, BASE)
