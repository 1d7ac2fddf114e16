dralab schedule --nodes nodes.yaml --claim pod.yaml -v
