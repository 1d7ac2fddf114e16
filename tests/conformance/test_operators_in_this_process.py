"""Operators on kopf and kr8s in this process: their planted bugs are found, and trials repeat.

kopf_sites.py calls the server with a blocking client, so it can only run as a process; these do
the same with what asyncio has.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sitescenarios
from dralab.testing.process import ProgramSpec
from dralab.testing.program_files import ProgramFile
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial, schedule
from siteoperators import Sites

HERE = Path(__file__).parent
OPERATORS = ("kopf", "kr8s")
BUGS = ("stale-read", "no-recheck", "lost-finalizer", "requeue-storm", "orphan")
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]
