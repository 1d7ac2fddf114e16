# Pods that share GPUs, placed one by one: how much does each policy place, how much does it waste?
for policy in random bestfit fgd; do
  echo "$policy"
  dralab simulate openb --nodes nodes.csv --pods pods.csv --policy $policy --inflate 1.3 --seed 42 \
    -o table | grep -E 'alloc_pct|frag_pct_of_idle@(50|75)'
done
