# Which of three policies loses fewer GPU hours in a month of training, services, batch jobs and notebooks, with failures?
# month.yaml is of `dralab generate workload --nodes 8 --load 0.5 --gpu-mtbf 5000h --share training=0.7
# --share serving=0.25 --share batch=0.03 --share notebook=0.02`: GPUs fail ten times as often as those of Llama 3.
out=$(mktemp -d)
dralab simulate campaign grid.yaml --workers 2 --write "$out" 2>/dev/null
rm -r "$out"
