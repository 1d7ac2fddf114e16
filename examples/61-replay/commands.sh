# What does a recording say? Each line is an object, a change of one, or its end.
head -n 1 day.dralab
tail -n 2 day.dralab
# How near does dralab's scheduler come to what happened? And had there been one more node?
dralab replay day.dralab --add gpu-0=1
# The same pods under another policy, with tables, reports and a page for each comparison.
out=$(mktemp -d)
dralab replay day.dralab --scheduler packing --write "$out" -o json | grep -E '"(same_node|placed_in_both|wait_mean)"'
(cd "$out" && ls)
rm -r "$out"
