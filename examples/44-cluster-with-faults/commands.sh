# Preemption, a quota, a Job, a custom driver, and three kinds of faults: what ran where and when.
out=$(mktemp -d)
dralab simulate run day.yaml --write "$out" -o table | grep -E 'succeeded|never|evictions|refused'
cut -d, -f1,3,6,7,14,15 "$out/tasks.csv"
# A policy has no cluster around it, so the code of a driver would not run; it says so.
dralab simulate run day.yaml --scheduler fgd 2>&1
rm -r "$out"
