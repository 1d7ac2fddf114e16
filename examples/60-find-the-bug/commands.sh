# The bug: found in eight seeds, with the shortest schedule that shows it.
dralab dst run scenario.yaml --seeds 8 2>/dev/null
echo
# One fault at a time, at each place of the run without faults: the same bug in 20 trials.
dralab dst run scenario.yaml --systematic --seeds 20 2>/dev/null
echo
# Without the bug all seeds pass.
dralab dst run fixed.yaml --seeds 8 2>/dev/null
