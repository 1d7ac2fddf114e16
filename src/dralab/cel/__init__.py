"""The expression language of Kubernetes (CEL): parse, check, estimate, evaluate.

What others use:

    compile_selector(expression, features, mode) -> CompiledSelector
        .paths  .max_cost  .evaluate(device) -> bool   (raises CelError)
    device_value(driver=…, attributes=…, capacity=…, allow_multiple_allocations=…) -> Map
    device_of(device, driver) -> Map                  a device of a resource.k8s.io/v1 slice
    check(expression, environment) -> Verdict          problems, largest cost
    environment(features, mode, purpose)               of selectors and derived attributes
    compile_expression(expression, environment) -> Program
        .type  .max_cost  .paths  .value(variables) -> (value, cost)
    kubernetes()  served()  standard()  of_objects()
    Environment.extended(variables=…, structs=…, sizes=…)

Errors: `CompileError` for a text that is not an expression of its environment, `CelError` for an
expression whose value is an error, which is not false. Values are described in `values`.

>>> selector = compile_selector('device.attributes["gpu.example.com"].model == "A100"')
>>> selector.paths
(('attributes', 'gpu.example.com', 'model'),)
>>> selector.evaluate(
...     device_value(driver="gpu.example.com", attributes={"model": {"string": "A100"}})
... )
True

Who may select what, and what an error means for a claim, is left to `allocation` and `api`.
"""

from dralab.cel.device import CelFeatures, attribute_value, device_of, device_value, environment
from dralab.cel.environment import DeclaredSize, Environment
from dralab.cel.errors import CelError, CompileError, CostExceededError, Issue
from dralab.cel.library import kubernetes, of_objects, served, standard
from dralab.cel.program import (
    CompiledSelector,
    ExpressionCheck,
    Program,
    check,
    compile_expression,
    compile_selector,
)

__all__ = [
    "CelError",
    "CelFeatures",
    "CompileError",
    "CompiledSelector",
    "CostExceededError",
    "DeclaredSize",
    "Environment",
    "ExpressionCheck",
    "Issue",
    "Program",
    "attribute_value",
    "check",
    "compile_expression",
    "compile_selector",
    "device_of",
    "device_value",
    "environment",
    "kubernetes",
    "of_objects",
    "served",
    "standard",
]
