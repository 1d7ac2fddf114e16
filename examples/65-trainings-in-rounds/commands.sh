# Trainings share GPUs of two models in rounds of six minutes: four policies, the last one of policy.py.
out=$(mktemp -d)
dralab simulate campaign grid.yaml --workers 1 --write "$out" 2>/dev/null
# The same GPUs fail now and then.
dralab simulate campaign failures.yaml --workers 1 --write "$out/failures" 2>/dev/null
rm -r "$out"
