# The bug: found in eight seeds, with the shortest schedule that shows it.
dralab dst run scenario.yaml --seeds 8 2>/dev/null
echo
# Without the bug all seeds pass.
dralab dst run fixed.yaml --seeds 8 2>/dev/null
