# A log of a parallel machine in the Standard Workload Format, under three schedulers.
for scheduler in fcfs easy conservative; do
  echo "$scheduler"
  dralab simulate run log.swf --hosts 8 --scheduler $scheduler -o table |
    grep -E 'makespan|mean_waiting'
done
