# Preemption, a quota, a Job, a custom driver, and three kinds of faults: what ran where and when.
out=$(mktemp -d)
dralab simulate run day.yaml --report "$out" -o table | grep -E 'succeeded|never|evictions|refused'
cut -d, -f1,3,6,7,14,15 "$out/tasks.csv"
# The built-in policies do not support these rules and report it.
dralab simulate run day.yaml --scheduler fgd 2>&1
rm -r "$out"
