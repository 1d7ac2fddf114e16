# Two schedulers, eight seeds: means, and which differences are significant.
out=$(mktemp -d)
dralab simulate campaign grid.yaml --workers 1 --write "$out" 2>/dev/null
rm -r "$out"
