# Try selectors on devices, and check their expected results and costs.
dralab conformance cel --verbose cases.json
