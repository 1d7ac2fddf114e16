# A Kubernetes API server in a Python program: nothing to install besides dralab, nothing to start.
python example.py
