# A random scheduler over HTTPS with a token, in simulated time; the notes list the pods it lost.
dralab simulate run pods.yaml -o table 2>&1 | grep -E 'never bound|succeeded|never_started|makespan'
