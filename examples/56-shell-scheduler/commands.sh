# Needs kubectl and curl. PERIOD shortens the loop's sleep of 6 s; the simulated times do not change.
PERIOD=0.5 dralab simulate run pods.yaml -o table | grep -E 'succeeded|makespan|wait_max'
