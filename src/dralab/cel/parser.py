"""Tokens into a tree.

Grammar: the CEL language definition. Binary operators are read by precedence with two stacks,
so a long chain costs no depth; whatever nests is counted, and refused beyond cel-go's limit.
"""

from typing import Final

from dralab.cel.deep_recursion import Step, run
from dralab.cel.errors import CompileError, Issue
from dralab.cel.lexer import LexicalError, LexicalToken, tokens
from dralab.cel.macros import MacroError, expand
from dralab.cel.syntax import (
    Call,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapEntry,
    MapNode,
    Select,
    Struct,
)
from dralab.cel.values import INT_MAX, Uint

MAX_CODE_POINTS: Final = 100_000
MAX_DEPTH: Final = 250

PRECEDENCE: Final = {
    "||": 1, "&&": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
FUNCTIONS: Final = {sign: f"_{sign}_" for sign in PRECEDENCE} | {"in": "@in"}
RESERVED: Final = frozenset(
    {
        "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
        "loop", "package", "namespace", "return", "var", "void", "while",
    }
)  # fmt: skip

# What an expression begins with, as ANTLR lists it, and the signs among that.
EXPRESSION: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)
BEGINNINGS: Final = frozenset("[{(.-!")
CLOSING: Final = frozenset(")]")


class GrammarError(Exception):
    """A text outside the grammar."""

    def __init__(self, message: str, offset: int, *more: Issue) -> None:
        super().__init__(message)
        self.problems = (Issue(message, offset), *more)


def parse(text: str, *, macros: frozenset[str], quoted_names: bool = False) -> Expr:
    """Return the tree of an expression, its macros expanded.

    `macros` names those which the environment has. Raise CompileError.
    """
    if len(text) > MAX_CODE_POINTS:
        raise CompileError(
            text,
            detail="compilation failed: ERROR: <input>:-1:0: expression code point size exceeds "
            f"limit: size: {len(text)}, limit {MAX_CODE_POINTS}",
        )
    strays: list[Issue] = []
    try:
        parser = Parser(tokens(text, strays), macros, quoted_names=quoted_names)
        node = run(parser.whole())
    except LexicalError as error:
        raise CompileError(text, (*strays, error.problem)) from None
    except GrammarError as error:
        raise CompileError(text, (*strays, *error.problems)) from None
    except MacroError as error:
        raise CompileError(text, (*strays, Issue(error.message, error.offset))) from None
    if strays:
        raise CompileError(text, tuple(strays))
    return node


class Parser:
    """Reads one expression."""

    def __init__(
        self, found: list[LexicalToken], macros: frozenset[str], *, quoted_names: bool
    ) -> None:
        self.tokens = found
        self.macros = macros
        self.quoted_names = quoted_names
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> LexicalToken:
        """The token to read next."""
        return self.tokens[self.at]

    def take_token(self, sign: str) -> LexicalToken | None:
        """Consume a sign, if it comes next."""
        token = self.tokens[self.at]
        if token.kind == "sign" and token.text == sign:
            self.at += 1
            return token
        return None

    def expect(self, sign: str) -> LexicalToken:
        """Consume a sign, which must come next."""
        found = self.take_token(sign)
        if found is None:
            raise self._not(sign)
        return found

    def unexpected(self, expected: str) -> GrammarError:
        """Return the syntax error of an unexpected token."""
        return GrammarError(_mismatched(self.token, expected), self.token.offset)

    def _not(self, sign: str, *others: str) -> GrammarError:
        """Return the syntax error of a missing sign; ANTLR adds or drops one token."""
        token, shown = self.token, f"'{sign}'"
        if others:
            shown = "{" + ", ".join(f"'{each}'" for each in (sign, *others)) + "}"
        if token.kind != "end" and self.tokens[self.at + 1].text in {sign, *others}:
            text = f"extraneous input '{token.text}' expecting {shown}"
        elif (sign in CLOSING and token.kind == "end") or (sign == ":" and _begins(token)):
            text = f"missing '{sign}' at '{token.text}'"
        else:
            return self.unexpected(shown)
        return GrammarError(f"Syntax error: {text}", token.offset)

    def _no_name(self) -> GrammarError:
        """Return the syntax error of a dot without a name."""
        token = self.token
        return _no_alternative("." if token.kind == "end" else f".{token.text}", token)

    def whole(self) -> Step[Expr]:
        """Read the expression up to the end of the text."""
        node: Expr = yield self.expression()
        if self.token.kind != "end":
            if self.tokens[self.at + 1].kind == "end":
                # One token too many: ANTLR thinks of it as to be dropped.
                raise GrammarError(
                    f"Syntax error: extraneous input '{self.token.text}' expecting <EOF>",
                    self.token.offset,
                )
            raise self.unexpected("<EOF>")
        return node

    def expression(self) -> Step[Expr]:
        """Read a conditional: `condition ? first : second`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GrammarError(
                f"expression recursion limit exceeded: {MAX_DEPTH}", self.token.offset
            )
        node: Expr = yield self.operation()
        question = self.take_token("?")
        if question is not None:
            first: Expr = yield self.operation()
            self.expect(":")
            second: Expr = yield self.expression()
            node = Call("_?_:_", [node, first, second], offset=question.offset)
        self.depth -= 1
        return node

    def operation(self) -> Step[Expr]:
        """Read operands joined by binary operators."""
        operands: list[Expr] = [(yield self.unary())]
        operators: list[LexicalToken] = []
        while True:
            token = self.token
            level = PRECEDENCE.get(token.text, 0) if token.kind == "sign" else 0
            while operators and PRECEDENCE[operators[-1].text] >= level:
                _join(operands, operators.pop())
            if not level:
                return operands[0]
            self.at += 1
            operators.append(token)
            operands.append((yield self.unary()))

    def unary(self) -> Step[Expr]:
        """Read a member behind any number of `!` or of `-`."""
        first = self.token
        if first.kind != "sign" or first.text not in {"!", "-"}:
            node: Expr = yield self.member()
            return node
        count = 0
        while self.take_token(first.text):
            count += 1
        negative = False
        if first.text == "-" and self.token.kind == "literal" and _is_number(self.token.value):
            count -= 1
            negative = True
        node = yield self.member(negative=negative)
        # Two of them undo each other, as in cel-go.
        if count % 2:
            node = Call(f"{first.text}_", [node], offset=first.offset)
        return node

    def member(self, *, negative: bool = False) -> Step[Expr]:
        """Read a primary expression with its selections, indexes and method calls."""
        node: Expr = yield self.primary(negative=negative)
        while True:
            token = self.token
            if self.take_token("."):
                optional = self.take_token("?") is not None
                name, name_token = self.field_name()
                opening = None if optional else self.take_token("(")
                if optional:
                    node = Call(
                        "_?._",
                        [node, Literal(name, offset=name_token.offset)],
                        offset=token.offset,
                    )
                elif opening is not None:
                    if name_token.kind == "quoted":
                        raise GrammarError(
                            "Syntax error: a quoted name cannot be called", name_token.offset
                        )
                    arguments: list[Expr] = yield self.arguments(")")
                    node = self.called(name, node, arguments, opening.offset)
                else:
                    node = Select(node, name, offset=token.offset)
            elif self.take_token("["):
                optional = self.take_token("?") is not None
                index: Expr = yield self.expression()
                self.expect("]")
                function = "_[?_]" if optional else "_[_]"
                node = Call(function, [node, index], offset=token.offset)
            elif token.text == "{" and token.kind == "sign" and (name := _dotted(node)):
                self.at += 1
                node = yield self.fields(name, token.offset)
            else:
                return node

    def primary(self, *, negative: bool) -> Step[Expr]:
        """Read a literal, a name, a function call, brackets, a list or a map."""
        token = self.token
        self.at += 1
        if token.kind == "literal":
            return Literal(_literal(token, negative=negative), offset=token.offset)
        if token.kind == "sign":
            if token.text == "(":
                node: Expr = yield self.expression()
                self.expect(")")
                return node
            if token.text == "[":
                node = yield self.list_(token.offset)
                return node
            if token.text == "{":
                node = yield self.map_(token.offset)
                return node
            if token.text == ".":
                if self.token.kind != "name":
                    raise self._no_name()
                name = self.token
                self.at += 1
                node = yield self.named("." + name.text, name)
                return node
        if token.kind != "name":
            self.at -= 1
            raise self._no_expression()
        node = yield self.named(token.text, token)
        return node

    def _no_expression(self) -> GrammarError:
        """Return the syntax error of a missing expression; ANTLR looks one token further."""
        token = self.token
        before = self.tokens[self.at - 1].text if self.at else ""
        following = self.tokens[self.at + 1] if token.kind != "end" else token
        expected = self._beginnings(before)
        ends = Issue(_mismatched(following, expected), following.offset)
        if token.kind == "end" and before == "-":
            return _no_alternative(before, token, ends)
        if _begins(following) or (token.kind == "end" and before == "!"):
            text = f"Syntax error: extraneous input '{token.text}' expecting {expected}"
            return GrammarError(text, token.offset)
        goes_on = following.kind == "end" and following is not token and token.text not in CLOSING
        more = [ends] if goes_on else []
        return GrammarError(_mismatched(token, expected), token.offset, *more)

    def _beginnings(self, before: str) -> str:
        """Return the expected tokens, as ANTLR lists them."""
        if before not in {"(", "["} or self.at < 2:
            return EXPRESSION
        last = self.tokens[self.at - 2]
        if before == "(" and last.kind == "name":
            return EXPRESSION.replace("'.'", "')', '.'")
        if before == "[" and (last.kind in {"name", "literal"} or last.text in CLOSING):
            return EXPRESSION.replace("'!'", "'!', '?'")
        return EXPRESSION

    def named(self, name: str, token: LexicalToken) -> Step[Expr]:
        """Read a variable or a call of a global function."""
        opening = self.take_token("(")
        if opening is None:
            if token.text in RESERVED:
                raise GrammarError(f"reserved identifier: {token.text}", token.offset)
            return Ident(name, offset=token.offset)
        arguments: list[Expr] = yield self.arguments(")")
        return self.called(name, None, arguments, opening.offset)

    def field_name(self) -> tuple[str, LexicalToken]:
        """Read the name behind a dot; reserved words are allowed here."""
        token = self.token
        if token.kind == "quoted" and not self.quoted_names:
            raise GrammarError("unsupported syntax: '`'", token.offset)
        if token.kind not in {"name", "quoted"}:
            raise self._no_name()
        self.at += 1
        return token.text, token

    def arguments(self, closing: str) -> Step[list[Expr]]:
        """Read expressions up to a closing bracket; only lists may end with a comma."""
        found: list[Expr] = []
        if self.take_token(closing):
            return found
        while True:
            found.append((yield self.expression()))
            if self.take_token(closing):
                return found
            if not self.take_token(","):
                raise self._not(closing)

    def list_(self, offset: int) -> Step[Expr]:
        """Read the elements of a list."""
        elements: list[Expr] = []
        optional = set()
        while not self.take_token("]"):
            if elements:
                if not self.take_token(","):
                    raise self._not("]", ",")
                if self.take_token("]"):
                    break
                if self.token.kind == "end":
                    raise self._not("]")
            if self.take_token("?"):
                optional.add(len(elements))
            elements.append((yield self.expression()))
        return ListNode(elements, frozenset(optional), offset=offset)

    def map_(self, offset: int) -> Step[Expr]:
        """Read the entries of a map."""
        entries: list[MapEntry] = []
        while not self.take_token("}"):
            if entries:
                self.expect(",")
                if self.take_token("}"):
                    break
            optional = self.take_token("?") is not None
            key: Expr = yield self.expression()
            self.expect(":")
            value: Expr = yield self.expression()
            entries.append(MapEntry(key, value, optional))
        return MapNode(entries, offset=offset)

    def fields(self, name: str, offset: int) -> Step[Expr]:
        """Read the fields of a message."""
        found: list[tuple[str, Expr]] = []
        optionals: set[str] = set()
        while not self.take_token("}"):
            if found:
                self.expect(",")
                if self.take_token("}"):
                    break
            optional = self.take_token("?") is not None
            field, _ = self.field_name()
            self.expect(":")
            found.append((field, (yield self.expression())))
            if optional:
                optionals.add(field)
        return Struct(name, found, frozenset(optionals), offset=offset)

    def called(self, name: str, target: Expr | None, arguments: list[Expr], offset: int) -> Expr:
        """Return a call, or its macro expansion."""
        expanded = None
        if name in self.macros:
            expanded = expand(name, target, arguments, offset)
        return expanded or Call(name, arguments, target, offset=offset)


def _mismatched(token: LexicalToken, expected: str) -> str:
    return f"Syntax error: mismatched input '{token.text}' expecting {expected}"


def _no_alternative(text: str, token: LexicalToken, *more: Issue) -> GrammarError:
    return GrammarError(
        f"Syntax error: no viable alternative at input '{text}'", token.offset, *more
    )


def _begins(token: LexicalToken) -> bool:
    """Return whether an expression may begin with a token."""
    return token.kind in {"literal", "name"} or (token.kind == "sign" and token.text in BEGINNINGS)


def _join(operands: list[Expr], operator: LexicalToken) -> None:
    right, left = operands.pop(), operands.pop()
    function = FUNCTIONS[operator.text]
    if operator.text in {"&&", "||"} and isinstance(left, Call) and left.function == function:
        left.args.append(right)
        operands.append(left)
        return
    operands.append(Call(function, [left, right], offset=operator.offset))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, (bool, Uint))


def _literal(token: LexicalToken, *, negative: bool) -> object:
    value = token.value
    if negative:
        return -value
    if type(value) is int and value > INT_MAX:
        raise GrammarError("invalid int literal", token.offset)
    return value


def _dotted(node: Expr) -> str:
    """Return the dotted name that a chain of selections spells, or nothing."""
    parts = []
    while isinstance(node, Select) and not node.test:
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return ""
    return ".".join([node.name, *reversed(parts)])
