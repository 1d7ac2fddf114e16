# What would an autoscaler do with a day of pods that claim GPUs, and what would it cost?
out=$(mktemp -d)
for how in \
  "{cluster-autoscaler: {expander: [least-waste]}}" \
  "{cluster-autoscaler: {expander: [random]}}" \
  "{karpenter: {consolidation: WhenEmpty}}" \
  "karpenter"
do
  echo "== $how"
  sed "s/^autoscaler: .*/autoscaler: $how/" day.yaml > "$out/day.yaml"
  dralab simulate run "$out/day.yaml" --write "$out/report" -o table |
    grep -E '^(cost|idle_cost|wasted_gpu|wait_mean|wait_max|evictions|succeeded|nodes_asked) '
done
# The nodes of the last one that were replaced by cheaper ones.
grep -E "^name|replaced" "$out/report/nodes.csv" | head -6
rm -r "$out"
