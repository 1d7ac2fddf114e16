# A Batsim workload on a SimGrid platform, under EASY back-filling; then Batsim's own output file.
out=$(mktemp -d)
dralab simulate run jobs.json cluster.xml --scheduler easy \
  --export "$out/run" -o table | grep -E 'makespan|mean_|nb_jobs'
cut -d, -f1,3,4,9,11,15 "$out/run_jobs.csv"
rm -r "$out"
