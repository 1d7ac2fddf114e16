# A Kubernetes API server in a Python program; needs only dralab.
python example.py
