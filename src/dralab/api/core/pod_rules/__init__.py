"""What a pod, and a template of pods, must be: one module for each part of a spec.

`spec` puts them together; `updates` says what may change later. Source of the rules, their order
and words: k8s.io/kubernetes 1.36 `pkg/apis/core/validation/validation.go`, and answers of a real
server. Defaults are left to `pod_defaults`, the order of maps to chance there: here it is that of
the object.
"""
