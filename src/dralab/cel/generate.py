"""Trees into Python source: the fast form of an expression.

The generated function takes the variables and returns the value. It does not absorb errors and
does not count costs: where anything goes wrong it raises, and the caller asks `evaluation`, which
is exact. Where it returns, it returns what `evaluation` would.

    device["attributes"]["gpu.example.com"]["model"] == "A100" and …

Python limits the nesting of brackets, blocks and of its own compiler. So code is linearised:
an expression that grows too deep is assigned to a temporary, and a block that would nest too
deep becomes its own function, with the variables in scope as its arguments.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from dralab.cel.deep_recursion import Step, run
from dralab.cel.errors import CelError
from dralab.cel.evaluation import FOLDED
from dralab.cel.generated_calls import RUNTIME, SpecialisedCode
from dralab.cel.generated_code import Code, GeneratedNames
from dralab.cel.library import FUNCTIONS
from dralab.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
)
from dralab.values.records import dataclass

MAX_BRACKETS: Final = 20
MAX_BLOCKS: Final = 8

# Functions of literals whose value is found when the program is made.
CONSTANT: Final = FOLDED | {
    "quantity", "semver", "isQuantity", "isSemver", "url", "isURL", "ip", "isIP", "cidr",
    "isCIDR",
}  # fmt: skip


def generate(tree: Expr, variables: tuple[str, ...]) -> Callable[..., Any]:
    """Return a function of the variables' values that raises wherever it is not sure."""
    writer = ProgramWriter(GeneratedNames())
    scope = {name: f"v{position}" for position, name in enumerate(variables)}
    code = run(writer.node(tree, scope))
    writer.define("program", tuple(scope.values()), code)
    source = "\n".join(writer.functions)
    namespace: dict[str, Any] = {**RUNTIME, **writer.names.constants}
    # The source is made here, of names made here: no text of the expression gets into it but
    # as a quoted literal.
    exec(compile(source, "<expression>", "exec"), namespace)  # noqa: S102 - see above
    program: Callable[..., Any] = namespace["program"]
    return program


Scope = Mapping[str, str]


@dataclass
class ProgramWriter:
    """Writes one program."""

    names: GeneratedNames
    functions: list[str] = field(default_factory=list)

    # --- pieces of code ---

    def define(self, name: str, arguments: tuple[str, ...], code: Code) -> None:
        """Write a function that returns the value of a piece of code."""
        lines = [f"def {name}({', '.join(arguments)}):", *code.indented()]
        self.functions.append("\n".join([*lines, f"    return {code.value}"]))

    def settled(self, code: Code) -> Code:
        """Return code whose value has few brackets."""
        return self.named(code) if code.brackets > MAX_BRACKETS else code

    def named(self, code: Code) -> Code:
        """Return code whose value is a name."""
        if code.value.isidentifier():
            return code
        name = self.names.new("t")
        return Code(name, [*code.lines, f"{name} = {code.value}"], blocks=code.blocks)

    def shallow(self, code: Code, scope: Scope) -> Code:
        """Return code that may be put into one more block."""
        if code.blocks < MAX_BLOCKS:
            return code
        name = self.names.new("f")
        arguments = tuple(dict.fromkeys(scope.values()))
        self.define(name, arguments, code)
        return Code(f"{name}({', '.join(arguments)})", brackets=1)

    # --- expressions ---

    def node(self, node: Expr, scope: Scope) -> Step[Code]:
        """Return the code of an expression."""
        code: Code
        match node:
            case Literal():
                code = self.names.constant(node.value)
            case Ident():
                code = (
                    Code(scope[node.name])
                    if node.constant is None
                    else self.names.constant(node.constant)
                )
            case Select():
                operand: Code = yield self.node(node.operand, scope)
                code = SpecialisedCode.select(node, operand, self.names)
            case Call():
                code = yield self.call(node, scope)
            case ListNode():
                code = yield self.list_(node, scope)
            case MapNode():
                code = yield self.map_(node, scope)
            case Comprehension():
                code = yield self.comprehension(node, scope)
            case _:
                # The checker lets no other kind of node through.
                raise AssertionError(node)
        return self.settled(code)

    def call(self, node: Call, scope: Scope) -> Step[Code]:
        """Return the code of a call."""
        constant = folded(node)
        if constant is not None:
            return self.names.constant(constant[0])
        code: Code
        if node.function in {"_&&_", "_||_"}:
            code = yield self.logical(node, scope)
        elif node.macro:
            code = yield self.optional_map(node, scope)
        elif node.function == "_?_:_":
            code = yield self.conditional(node, scope)
        elif node.function in {"or", "orValue"} and node.target is not None:
            code = yield self.alternative(node, scope)
        elif (sides := SpecialisedCode.quantities(node)) is not None:
            left: Code = yield self.node(sides[0], scope)
            right: Code = yield self.node(sides[1], scope)
            value = f"({left.value}.number {sides[2]} {right.value}.number)"
            code = Code.expression(value, left, right)
        else:
            operands: list[Code] = []
            if node.target is not None:
                operands.append((yield self.node(node.target, scope)))
            for argument in node.args:
                operands.append((yield self.node(argument, scope)))  # noqa: PERF401 - a step is yielded
            code = SpecialisedCode.call(node, operands, self.names)
        return code

    def boolean(self, node: Expr, code: Code) -> Code:
        """Return code whose value is a bool or that raises."""
        if node.type.kind == "bool":
            return code
        return Code(f"boolean({code.value})", code.lines, code.brackets + 1, code.blocks)

    def logical(self, node: Call, scope: Scope) -> Step[Code]:
        """Return the code of `&&` or `||`."""
        word = "and" if node.function == "_&&_" else "or"
        operands: list[Code] = []
        for argument in node.args:
            operand: Code = yield self.node(argument, scope)
            operands.append(self.boolean(argument, operand))
        if not any(operand.lines for operand in operands):
            value = f" {word} ".join(operand.value for operand in operands)
            return Code(f"({value})", brackets=1 + max(o.brackets for o in operands))
        result = self.names.new("t")
        decided = "not " if word == "and" else ""
        lines = [f"{result} = {word == 'or'}", "while True:"]
        blocks = 0
        for operand in operands:
            inner = self.shallow(operand, scope)
            blocks = max(blocks, inner.blocks + 1)
            lines += [*inner.indented(), f"    if {decided}{inner.value}: break"]
        # Falling through all operands: none of them decided.
        lines += [f"    {result} = {word == 'and'}", "    break"]
        return Code(result, lines, blocks=max(blocks, 2))

    def branches(self, condition: Code, first: Code, second: Code, scope: Scope) -> Code:
        """Return the code of a choice between two pieces of code."""
        if not first.lines and not second.lines:
            value = f"({first.value} if {condition.value} else {second.value})"
            brackets = 1 + max(condition.brackets, first.brackets, second.brackets)
            return Code(value, condition.lines, brackets, condition.blocks)
        result = self.names.new("t")
        first, second = self.shallow(first, scope), self.shallow(second, scope)
        lines = [
            *condition.lines,
            f"if {condition.value}:",
            *first.indented(),
            f"    {result} = {first.value}",
            "else:",
            *second.indented(),
            f"    {result} = {second.value}",
        ]
        return Code(
            result, lines, blocks=max(condition.blocks, first.blocks + 1, second.blocks + 1)
        )

    def conditional(self, node: Call, scope: Scope) -> Step[Code]:
        """Return the code of `condition ? first : second`."""
        condition: Code = yield self.node(node.args[0], scope)
        first: Code = yield self.node(node.args[1], scope)
        second: Code = yield self.node(node.args[2], scope)
        return self.branches(self.boolean(node.args[0], condition), first, second, scope)

    def alternative(self, node: Call, scope: Scope) -> Step[Code]:
        """Return the code of `optional.or(other)` or `optional.orValue(value)`."""
        assert node.target is not None  # noqa: S101 - only methods get here
        other: Code = yield self.node(node.args[0], scope)
        direct = SpecialisedCode.optional_key(node)
        if direct is not None and not other.lines:
            holder, name = direct
            operand: Code = yield self.node(holder, scope)
            value = f"field_or({operand.value}, {name!r}, {other.value})"
            brackets = 1 + max(operand.brackets, other.brackets)
            return Code(value, operand.lines, brackets, operand.blocks)
        target: Code = yield self.node(node.target, scope)
        target = self.named(Code(f"holder({target.value})", target.lines, 1, target.blocks))
        taken = target.value if node.function == "or" else f"{target.value}.value"
        condition = Code(f"{target.value}.present", target.lines, blocks=target.blocks)
        return self.branches(condition, Code(taken), other, scope)

    def optional_map(self, node: Call, scope: Scope) -> Step[Code]:
        """Return the code of `optMap` or `optFlatMap`."""
        test, inner = node.args[0], node.args[1]
        bind = inner.args[0] if isinstance(inner, Call) else inner
        assert isinstance(test, Call)  # noqa: S101 - as the macro made it
        assert test.target is not None  # noqa: S101 - as the macro made it
        assert isinstance(bind, Comprehension)  # noqa: S101 - as the macro made it
        target: Code = yield self.node(test.target, scope)
        target = self.named(Code(f"holder({target.value})", target.lines, 1, target.blocks))
        variable = self.names.new("x")
        body: Code = yield self.node(bind.result, {**scope, bind.accu: variable})
        value = body.value if node.macro == "optFlatMap" else f"Optional(True, {body.value})"
        lines = [f"{variable} = {target.value}.value", *body.lines]
        first = Code(value, lines, body.brackets + 1, body.blocks)
        condition = Code(f"{target.value}.present", target.lines, blocks=target.blocks)
        # The value is taken from the target's name, which must be known where that happens.
        return self.branches(condition, first, Code("NOTHING"), {**scope, "": target.value})

    def list_(self, node: ListNode, scope: Scope) -> Step[Code]:
        """Return the code of a list literal."""
        parts: list[Code] = []
        for element in node.elements:
            parts.append((yield self.node(element, scope)))  # noqa: PERF401 - a step is yielded
        values = [
            f"*present({part.value})" if position in node.optional else part.value
            for position, part in enumerate(parts)
        ]
        return Code.expression(f"[{', '.join(values)}]", *parts)

    def map_(self, node: MapNode, scope: Scope) -> Step[Code]:
        """Return the code of a map literal."""
        parts: list[Code] = []
        entries = []
        for entry in node.entries:
            key: Code = yield self.node(entry.key, scope)
            value: Code = yield self.node(entry.value, scope)
            parts += [key, value]
            entries.append(f"({key.value}, {value.value}, {entry.optional}),")
        return Code.expression(f"built_map(({' '.join(entries)}))", *parts)

    # --- loops ---

    def comprehension(self, node: Comprehension, scope: Scope) -> Step[Code]:
        """Return the code of a macro that loops, or of `cel.bind`."""
        if node.macro == "bind":
            init: Code = yield self.node(node.init, scope)
            variable = self.names.new("x")
            body: Code = yield self.node(node.result, {**scope, node.accu: variable})
            lines = [*init.lines, f"{variable} = {init.value}", *body.lines]
            return Code(body.value, lines, body.brackets, max(init.blocks, body.blocks))
        ranged: Code = yield self.node(node.range, scope)
        first = self.names.new("x")
        inner = {**scope, node.var: first}
        of_list = node.range.type.kind == "list"
        if node.var2:
            second = self.names.new("x")
            inner[node.var2] = second
            head = f"for {first}, {second} in pairs({ranged.value}):"
        elif of_list:
            head = f"for {first} in {ranged.value}:"
        else:
            head = f"for {first} in elements({ranged.value}):"
        result = self.names.new("t")
        start, step, end = yield self.loop(node, inner, result)
        lines = [*ranged.lines, f"{result} = {start}", head, *step.indented()]
        return Code(end, lines, blocks=max(ranged.blocks, step.blocks + 1))

    def loop(self, node: Comprehension, scope: Scope, result: str) -> Step[tuple[str, Code, str]]:
        """Return the first value of a loop's result, the code of one round, the final value."""
        step = node.step
        condition: Code | None = None
        if isinstance(step, Call) and step.function == "_?_:_" and not step.macro:
            tested = step.args[0]
            condition = yield self.node(tested, scope)
            condition = self.shallow(self.boolean(tested, condition), scope)
            step = step.args[1]
        assert isinstance(step, Call)  # noqa: S101 - as the macro made it
        if node.macro in {"all", "exists"}:
            predicate = step.args[1]
            code: Code = yield self.node(predicate, scope)
            code = self.shallow(self.boolean(predicate, code), scope)
            stop = "not " if node.macro == "all" else ""
            lines = [
                *code.lines,
                f"if {stop}{code.value}:",
                f"    {result} = {node.macro == 'exists'}",
                "    break",
            ]
            return str(node.macro == "all"), Code("", lines, blocks=max(code.blocks, 1)), result
        if node.macro == "exists_one":
            start, lines, end = "0", [f"{result} += 1"], f"({result} == 1)"
            blocks = 0
        elif isinstance(node.init, ListNode):
            made = step.args[1]
            assert isinstance(made, ListNode)  # noqa: S101 - as the macro made it
            element: Code = yield self.node(made.elements[0], scope)
            element = self.shallow(element, scope)
            start, end = "[]", result
            lines = [*element.lines, f"{result}.append({element.value})"]
            blocks = element.blocks
        else:
            parts: list[Code] = []
            for argument in step.args[1:]:
                part: Code = yield self.node(argument, scope)
                parts.append(self.shallow(part, scope))
            start, end = "{}", f"new_map({result})"
            lines = [line for part in parts for line in part.lines]
            values = ", ".join(part.value for part in parts)
            lines.append(f"enter({result}, {values})")
            blocks = max(part.blocks for part in parts)
        if condition is None:
            return start, Code("", lines, blocks=blocks), end
        inner = self.guarded(condition, Code("", lines, blocks=blocks))
        return start, inner, end

    def guarded(self, condition: Code, code: Code) -> Code:
        """Return code that continues to the next round unless a condition holds."""
        lines = [*condition.lines, f"if not {condition.value}: continue", *code.lines]
        return Code("", lines, blocks=max(condition.blocks, code.blocks, 1))


def folded(node: Call) -> tuple[Any] | None:
    """Return the value of a function of literals, if it has one."""
    if node.function not in CONSTANT or node.target is not None:
        return None
    if not all(isinstance(argument, Literal) for argument in node.args):
        return None
    try:
        values = [argument.value for argument in node.args if isinstance(argument, Literal)]
        return (FUNCTIONS[node.function](*values),)
    except CelError:
        return None
