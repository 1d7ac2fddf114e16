# Pods that share GPUs, placed one by one: how much does each policy place, how much does it waste?
for policy in random bestfit fgd; do
  echo "$policy"
  dralab simulate run nodes.csv pods.csv --scheduler $policy --inflate 1.3 --seed 42 \
    -o table | grep -E 'alloc_pct|frag_pct_of_idle@(50|75)'
done
