r"""Reading an expression: `3/4`, `\frac{3}{4}`, `2\sqrt{3} + x^2`, `(-1, 4]`, `\{1, 2\}`, `x = 5`, a matrix.

A recursive descent over a grammar of our own. A text outside it is no expression, and never reaches an interpreter or
a computer algebra system. Size and depth are bounded, so that every text ends soon.
"""

from __future__ import annotations

from fractions import Fraction

from agentgym_flow.envs.canvas.scoring.cursor import Cursor
from agentgym_flow.envs.canvas.scoring.expression import FUNCTIONS, Expression, Name, Number, Operation
from agentgym_flow.envs.canvas.scoring.tokens import NotMathematics, tokens

MAX_EXPONENT = 400
"""The largest power of ten in a number such as `1e9`."""

_LETTERS = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi varphi chi "
    "psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega"
)
_GREEK = frozenset(_LETTERS.split())
_CALLS = {**{name: name for name in FUNCTIONS}, "asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_NAMED = {"pi": "pi", "infty": "oo", "infinity": "oo", "inf": "oo", "oo": "oo"}
_RELATIONS = {"=": "=", "<": "<", ">": "<", "le": "<=", "ge": "<="}  # with its sides exchanged, `>` is `<`
_MATRICES = frozenset(("pmatrix", "bmatrix", "matrix", "vmatrix", "Bmatrix"))
_CLOSING = {"(": ")", "[": "]"}


def parse(text: str) -> Expression:
    """Return the tree of an expression. Raises `NotMathematics` for every text that is none, or too large."""
    reader = _Reader(tokens(text))
    tree = reader.whole()
    if reader.token is not None:
        raise NotMathematics(f"not expected: {reader.token.text}")
    return tree


class _Reader(Cursor):
    """The grammar, a method for each of its rules."""

    # From the loosest binding to the tightest.

    def whole(self) -> Expression:
        """Read `a, b, c`, a relation or one expression."""
        items = [self._relation()]
        while self.says(","):
            self.take()
            items.append(self._relation())
        return items[0] if len(items) == 1 else Operation("list", tuple(items))

    def _relation(self) -> Expression:
        left = self._union()
        if self.says("in"):  # `x \in [1, 2]` says what x is, as `x = 5` does
            self.take()
            return Operation("=", (left, self._union()))
        sign = self._relation_sign()
        if not sign:
            return left
        right = self._union()
        other = self._relation_sign()
        if other:
            return self._between(left, sign, right, other)
        if sign in (">", "ge"):
            left, right = right, left
        return Operation(_RELATIONS[sign], (left, right))

    def _relation_sign(self) -> str:
        if self.token is None or self.token.kind == "word" or self.token.text not in _RELATIONS:
            return ""
        return self.take().text

    def _between(self, first: Expression, sign: str, name: Expression, other: str) -> Expression:
        r"""Read the end of `2 < x \le 5`, and return it as `x = (2, 5]`."""
        last = self._union()
        if not isinstance(name, Name) or "=" in (sign, other) or (sign in (">", "ge")) != (other in (">", "ge")):
            raise NotMathematics("an odd chain of relations")
        if sign in (">", "ge"):
            first, last, sign, other = last, first, other, sign
        brackets = ("(" if sign in ("<", ">") else "[") + (")" if other in ("<", ">") else "]")
        return Operation("=", (name, Operation(brackets, (first, last))))

    def _union(self) -> Expression:
        items = [self._sum()]
        while self.says("cup"):
            self.take()
            items.append(self._sum())
        return items[0] if len(items) == 1 else Operation("union", tuple(items))

    def _sum(self) -> Expression:
        with self.nested():
            left = self._product()
            while self.says("+", "-", "pm"):
                sign = self.take().text
                left = Operation(sign, (left, self._product()))
        return left

    def _sums(self) -> tuple[Expression, ...]:
        """Read `a, b, c`, at least one."""
        items = [self._sum()]
        while self.says(","):
            self.take()
            items.append(self._sum())
        return tuple(items)

    def _product(self) -> Expression:
        left = self._signed()
        while True:
            if self.says("*", "/"):
                sign = self.take().text
                left = Operation(sign, (left, self._signed()))
            elif self._starts_factor():
                # `1\frac{1}{2}` and `1 1/2` are mixed numbers; else what stands side by side is multiplied
                mixed = self._mixed(left)
                left = mixed or Operation("*", (left, self._power()))
            else:
                return left

    def _mixed(self, left: Expression) -> Expression | None:
        natural = isinstance(left, Number) and left.value.denominator == 1 and left.value >= 0
        negative = isinstance(left, Operation) and left.name == "neg" and isinstance(left.operands[0], Number)
        if not natural and not negative:
            return None
        start = self.place
        token = self.take()
        part: Expression | None = None
        if token.text == "frac" and token.kind == "command":
            part = Operation("/", (self._argument(), self._argument()))
        elif token.kind == "number" and token.spaced and self.says("/"):
            self.take()
            part = Operation("/", (Number(_number(token.text)), self._primary()))
        if isinstance(part, Operation) and all(isinstance(side, Number) for side in part.operands):
            return Operation("-" if negative else "+", (left, part))
        self.place = start
        return None

    def _starts_factor(self) -> bool:
        token = self.token
        if token is None:
            return False
        if token.kind == "number":
            after = self.ahead(1)
            return token.spaced and after is not None and after.text == "/"
        if token.kind == "word":
            return True
        if token.kind == "command":
            return token.text in _CALLS or token.text in _GREEK or token.text in ("frac", "sqrt", "pi", "binom", "log")
        return token.text in ("(", "{") or (token.text == "|" and self.bars == 0)

    def _signed(self) -> Expression:
        negative = False
        while self.says("+", "-"):
            negative ^= self.take().text == "-"
        if self.says("pm"):
            self.take()
            return Operation("pm", (Number(Fraction(0)), self._power()))
        inner = self._power()
        return Operation("neg", (inner,)) if negative else inner

    def _power(self) -> Expression:
        base = self._postfix(self._primary())
        if not self.says("^"):
            return base
        self.take()
        with self.nested():
            exponent = self._signed() if self.says("+", "-") else self._power()
        return self._postfix(Operation("^", (base, exponent)))

    def _postfix(self, tree: Expression) -> Expression:
        while self.says("!", "%"):
            tree = Operation(self.take().text, (tree,))
        return tree

    def _primary(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return Number(_number(token.text))
        if token.kind == "word":
            return self._word(token.text)
        if token.kind == "command":
            return self._command(token.text)
        if token.text in _CLOSING:
            return self._brackets(token.text)
        if token.text == "{":
            inner = self._sum()
            self.expect("}")
            return inner
        if token.text == "|":
            self.bars += 1
            inner = self._sum()
            self.expect("|")
            self.bars -= 1
            return Operation("abs", (inner,))
        raise NotMathematics(f"not expected: {token.text}")

    def _brackets(self, opening: str) -> Expression:
        bars, self.bars = self.bars, 0
        items = self._sums()
        self.bars = bars
        closing = self.take().text
        if closing not in (")", "]"):
            raise NotMathematics("a bracket is not closed")
        if len(items) > 1:
            return Operation(opening + closing, items)
        if closing != _CLOSING[opening]:
            raise NotMathematics("the brackets do not fit")
        return items[0]

    def _word(self, word: str) -> Expression:
        known = _NAMED.get(word.lower())
        if known:
            return Name(known)
        if word == "sqrt":
            return Operation("root", (Number(Fraction(2)), self._inner()))
        if word in ("log", "abs") or word in _CALLS:
            return self._command(word)
        if len(word) > 3:
            raise NotMathematics(f"a word: {word}")
        letters: list[Expression] = [Name(letter) for letter in word[:-1]]
        tree: Expression = self._subscripted(word[-1])
        for letter in reversed(letters):
            tree = Operation("*", (letter, tree))
        return tree

    def _subscripted(self, name: str) -> Expression:
        if not self.says("_"):
            return Name(name)
        self.take()
        if self.says("{"):
            self.take()
            below = self.take().text
            self.expect("}")
        else:
            below = self.take().text
        if not below.isalnum():
            raise NotMathematics("an odd subscript")
        return Name(f"{name}_{below}")

    def _command(self, command: str) -> Expression:
        if command in _NAMED:
            return Name(_NAMED[command])
        if command in _GREEK:
            return self._subscripted(command)
        if command == "frac":
            return Operation("/", (self._argument(), self._argument()))
        if command == "binom":
            return Operation("binomial", (self._argument(), self._argument()))
        if command == "sqrt":
            return self._root()
        if command == "log":
            return self._logarithm()
        if command == "abs":
            return Operation("abs", (self._inner(),))
        if command in _CALLS:
            return self._call(_CALLS[command])
        if command == "{":
            return self._set()
        if command == "begin":
            return self._matrix()
        raise NotMathematics(f"unknown command: {command}")

    def _argument(self) -> Expression:
        r"""Read `{...}`, or one digit or letter, as in `\frac12`."""
        token = self.token
        if token is not None and token.kind in ("number", "word") and len(token.text) > 1 and token.text.isalnum():
            first = self.take_first()
            return Number(Fraction(int(first))) if token.kind == "number" and first.isdecimal() else Name(first)
        if token is None or (token.kind == "sign" and token.text != "{"):
            raise NotMathematics("an argument is missing")
        return self._inner()

    def _inner(self) -> Expression:
        with self.nested():
            return self._primary()

    def _root(self) -> Expression:
        index: Expression = Number(Fraction(2))
        if self.says("["):
            self.take()
            index = self._sum()
            self.expect("]")
        radicand = self._primary() if self.says("(") else self._argument()
        return Operation("root", (index, radicand))

    def _logarithm(self) -> Expression:
        base: Expression = Number(Fraction(10))
        if self.says("_"):
            self.take()
            base = self._argument()
        return Operation("log", (base, self._applied()))

    def _call(self, name: str) -> Expression:
        power: Expression | None = None
        if self.says("^"):  # `\sin^2 x`; with -1 it would be another function
            self.take()
            power = self._argument()
            if not isinstance(power, Number):
                raise NotMathematics("an odd power of a function")
        tree = Operation(name, (self._applied(),))
        return tree if power is None else Operation("^", (tree, power))

    def _applied(self) -> Expression:
        r"""Read what a function is applied to: `(x + 1)`, `{x}`, or a product without brackets, as in `\sin 2x`."""
        if self.says("(", "{"):
            return self._inner()
        with self.nested():
            tree = self._power()
            while self.token is not None and self.token.kind == "word" and len(self.token.text) == 1:
                tree = Operation("*", (tree, self._power()))
        return tree

    def _set(self) -> Expression:
        items = self._sums()
        token = self.take()
        if token.kind != "command" or token.text != "}":
            raise NotMathematics("a set is not closed")
        return Operation("set", items)

    def _matrix(self) -> Expression:
        name = self._environment()
        if name not in _MATRICES:
            raise NotMathematics(f"unknown environment: {name}")
        rows: list[Expression] = []
        row = [self._sum()]
        while True:
            token = self.take()
            if token.text == "&":
                row.append(self._sum())
            elif token.kind == "command" and token.text in ("\\", "end"):
                rows.append(Operation("row", tuple(row)))
                if token.text == "end" or self.says("end"):
                    break
                row = [self._sum()]
            else:
                raise NotMathematics("a matrix is not closed")
        if token.text != "end":
            self.take()
        if self._environment() != name:
            raise NotMathematics("a matrix is closed as another")
        return Operation("matrix", tuple(rows))

    def _environment(self) -> str:
        self.expect("{")
        name = self.take().text
        self.expect("}")
        return name


def _number(text: str) -> Fraction:
    _, _, exponent = text.lower().partition("e")
    if len(exponent) > 4 or (exponent and abs(int(exponent)) > MAX_EXPONENT):
        raise NotMathematics("too large a number")
    if len(text) > MAX_EXPONENT:
        raise NotMathematics("too many digits")
    return Fraction(text)
