# A custom scheduler and a built-in one on the same week of work.
for scheduler in bestfit together.py:KeepTogether; do
  echo "$scheduler"
  dralab simulate run week.yaml --scheduler $scheduler -o table |
    grep -E 'wait_mean|wait_p95|utilisation_gpu|fragmentation'
done
