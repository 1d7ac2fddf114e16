# Would ml/train run with one more node like node-1?
dralab what-if -f cluster.yaml -f waiting.yaml --add node-1=1
# And who would have to leave if node-2 went?
dralab what-if -f cluster.yaml --remove node-2
# Which pods would have to move so that ml/train fits on the nodes that are there?
dralab plan moves -f cluster.yaml -f waiting.yaml --for ml/train --explain
# How many nodes would have to be added instead, and which could go?
dralab plan nodes -f cluster.yaml -f waiting.yaml --shapes node-1,l40s
dralab plan nodes -f cluster.yaml --removable
# Which pods would an urgent one preempt, and when do they run again? A rehearsal with the scheduler.
out=$(mktemp -d)
dralab simulate run urgent.yaml --write "$out" -o table | grep -E 'succeeded|evictions'
cut -d, -f1,3,6,7,14,15 "$out/tasks.csv"
rm -r "$out"
