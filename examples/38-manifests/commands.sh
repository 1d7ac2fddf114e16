# Simulate plain manifests with times in annotations.
out=$(mktemp -d)
dralab simulate run scenario.yaml --write "$out" -o table | grep -E 'makespan|wait_max|never|refused'
cut -d, -f1,3,4,6,7,14,16 "$out/tasks.csv"
rm -r "$out"
