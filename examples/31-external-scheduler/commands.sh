# A 20-line scheduler with the official client (pip install kubernetes), in simulated time.
dralab simulate run burst.yaml -o table | grep -E 'makespan|wait_mean'
