# Try selectors on devices, and write down what they should say and cost.
dralab conformance cel --verbose cases.json
