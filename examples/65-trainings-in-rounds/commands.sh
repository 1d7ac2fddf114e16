# Trainings share GPUs of two models in rounds of six minutes: four policies, the last one of policy.py.
out=$(mktemp -d)
dralab simulate campaign grid.yaml --workers 1 --write "$out" 2>/dev/null
rm -r "$out"
