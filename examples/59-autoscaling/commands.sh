# What would an autoscaler do with a day of pods that claim GPUs, and what would it cost?
out=$(mktemp -d)
cp nodepools.yaml "$out"
for how in \
  "{cluster-autoscaler: {expander: [least-waste]}}" \
  "{karpenter: {consolidation: WhenEmpty}}" \
  "karpenter" \
  "{karpenter: {node_pools: nodepools.yaml}}"
do
  echo "== $how"
  sed "s/^autoscaler: .*/autoscaler: $how/" day.yaml > "$out/day.yaml"
  dralab simulate run "$out/day.yaml" --write "$out/report" -o table |
    grep -E '^(cost|idle_cost|wasted_gpu|wait_mean|evictions|lost_gpu_hours|succeeded|nodes_asked) '
done
# The nodes of the last one: how many of each type went, and why; without a reason they were there at the end.
tail -n +2 "$out/report/nodes.csv" | cut -d, -f2,8 | sort | uniq -c
rm -r "$out"
