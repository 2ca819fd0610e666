"""Programs: checks an expression against its variables' types and compiles it, in one pass.

An error is a value in CEL: `&&`, `||`, `all` and `exists` ignore a failed part if the rest decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubesim.apiserver.cel import comprehensions, costs, functions, messages, parts, types
from kubesim.apiserver.cel.running import Run, Scope, Typed, absorbing, started
from kubesim.apiserver.cel.sizes import Extent
from kubesim.apiserver.cel.syntax import (
    Call,
    Entries,
    Entry,
    Index,
    Items,
    Literal,
    Message,
    Name,
    Refused,
    Select,
    Tree,
    not_here,
    parsed,
)
from kubesim.apiserver.cel.types import BOOL, DYN, INT, NULL, TEXT, UNBOUND, ListOf, MapOf, OptionalOf, Type
from kubesim.apiserver.cel.values import Failed, ValueKind, equality, reader, type_of

_DEEPEST = 100
"""The deepest nesting of operations. Each takes one or two frames of Python's stack."""
_KINDS = ("bool", "int", "double", "string", "list", "map", "null_type")


@dataclass(frozen=True)
class Program:
    """A compiled expression. `type`: of its value. `uses`: the variables that it reads."""

    type: Type
    run: Run
    uses: frozenset[str]
    tree: Tree
    types: Mapping[int, Type]
    """Of each part of the tree, by its identity."""

    def __call__(self, variables: Mapping[str, Any]) -> Any:
        """The value of the expression. Raises Failed."""
        return self.run(started(variables))

    def cost(self, extent: Extent) -> int:
        """Its highest cost, if `self` has this extent."""
        return costs.most(self.tree, self.types, extent)


def compiled(text: str, variables: Mapping[str, Type], known: messages.Known | None = None) -> Program:
    """`known`: the messages that it may write.

    Without them it may not write maps either, because their cost is unknown. Raises Refused."""
    checker = _Checker(known)
    tree = parsed(text)
    typed = checker.typed(tree, dict(variables))
    return Program(typed.type, typed.run, frozenset(checker.uses), tree, checker.types)


class _Checker:
    def __init__(self, known: messages.Known | None) -> None:
        self._known = known
        self.uses: set[str] = set()
        self.types: dict[int, Type] = {}
        self._depth = 0

    def typed(self, tree: Tree, names: Mapping[str, Type]) -> Typed:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise not_here(f"more than {_DEEPEST} operations within each other")
        try:
            found = self._typed(tree, names)
        finally:
            self._depth -= 1
        self.types[id(tree)] = found.type
        return found

    def _typed(self, tree: Tree, names: Mapping[str, Type]) -> Typed:
        match tree:
            case Literal(value):
                return Typed(type_of(value) or NULL, lambda scope: value)
            case Name(name):
                self.uses.add(name)
                return _variable(name, names)
            case Items(items):
                return _list([self.typed(item, names) for item in items])
            case Select(target, name, optional):
                return parts.field(self.typed(target, names), name, optional=optional)
            case Index(target, at, optional):
                return parts.indexed(self.typed(target, names), self.typed(at, names), optional=optional)
            case Call():
                return self._call(tree, names)
            case Entries(entries):
                if self._known is None:
                    raise not_here("maps that are written out")
                return messages.mapped([(self.typed(each.key, names), self._entry(each, names)) for each in entries])
            case Message(name, entries):
                if self._known is None:
                    raise not_here("messages that are written out")
                given = [(each.key, self._entry(each, names)) for each in entries]
                return messages.made(self._known, name, given)

    def _entry(self, entry: Entry, names: Mapping[str, Type]) -> messages.Given:
        return messages.Given(self.typed(entry.value, names), entry.optional)

    def _call(self, call: Call, names: Mapping[str, Type]) -> Typed:
        if call.target is None and call.name == "has":
            return self._has(call, names)
        if call.target is not None and call.name in comprehensions.MACROS:
            return comprehensions.typed(call, self.typed(call.target, names), names, self.typed)
        if isinstance(call.target, Name) and call.target.name == "optional" and "optional" not in names:
            return parts.optional_made(call.name, [self.typed(each, names) for each in call.arguments])
        if call.target == Name("jsonpatch") and "jsonpatch" not in names and self._known is not None:
            return messages.of_json_patch(call.name, [self.typed(each, names) for each in call.arguments])
        if call.name == "matches":
            _check_patterns(call.arguments[-1:])
        given = [self.typed(each, names) for each in ((call.target,) if call.target else ()) + call.arguments]
        if call.target is not None:
            return _method(call.name, given)
        match call.name:
            case "&&" | "||":
                return _connected(call.name, given)
            case "?:":
                return _chosen(*given)
            case "==" | "!=":
                return _equal(call.name, *given)
            case "in":
                return _contained(*given)
            case "type" if len(given) == 1:
                return _kind_of(given[0])
        return _function(call.name, given)

    def _has(self, call: Call, names: Mapping[str, Type]) -> Typed:
        if len(call.arguments) != 1 or not isinstance(call.arguments[0], Select) or call.arguments[0].optional:
            raise Refused("invalid argument to has() macro")
        select = call.arguments[0]
        target = self.typed(select.target, names)
        if isinstance(target.type, OptionalOf):
            raise not_here("has() of an optional")
        key, _ = parts.part(target.type, select.name)
        there = parts.presence(target.type)
        return Typed(BOOL, lambda scope: there(target.run(scope), key))


def _check_patterns(arguments: tuple[Tree, ...]) -> None:
    """Checks literal patterns at once. Raises Refused."""
    for each in arguments:
        if isinstance(each, Literal) and isinstance(each.value, str):
            functions.pattern(each.value)


def _variable(name: str, names: Mapping[str, Type]) -> Typed:
    if name not in names:
        if name in _KINDS:
            kind = ValueKind(name)
            return Typed(types.TYPE, lambda scope: kind)
        raise Refused(f"undeclared reference to '{name}'")
    read = reader(names[name])
    return Typed(names[name], lambda scope: read(scope[name]))


def _list(items: list[Typed]) -> Typed:
    inner: Type = UNBOUND
    for at, item in enumerate(items):
        both = item.type if at == 0 else types.joined(inner, item.type)
        if both is None or (at and (both is DYN) and item.type is not inner):
            raise Refused(f"expected type '{inner}' but found '{item.type}'")
        inner = both
    runs = [item.run for item in items]
    return Typed(ListOf(inner), lambda scope: [run(scope) for run in runs])


def _connected(sign: str, given: list[Typed]) -> Typed:
    if any(each.type not in (BOOL, DYN) for each in given):
        raise parts.no_overload(sign, given)
    runs, decides = [each.run for each in given], sign == "||"
    return Typed(BOOL, lambda scope: absorbing(((run, scope) for run in runs), decides=decides))


def _chosen(condition: Typed, then: Typed, otherwise: Typed) -> Typed:
    both = types.joined(then.type, otherwise.type)
    if both is None or condition.type not in (BOOL, DYN):
        raise parts.no_overload("?:", [condition, then, otherwise])

    def run(scope: Scope) -> Any:
        found = condition.run(scope)
        if not isinstance(found, bool):
            raise Failed("no such overload")
        return then.run(scope) if found else otherwise.run(scope)

    return Typed(both, run)


def _equal(sign: str, left: Typed, right: Typed) -> Typed:
    if not types.comparable(left.type, right.type):
        raise parts.no_overload(sign, [left, right])
    for each in (left, right):
        if types.has_opaque(each.type):
            raise not_here("comparing durations, dates or bytes")
    same = equality(_compared_as(left.type, right.type))
    if sign == "==":
        return Typed(BOOL, lambda scope: same(left.run(scope), right.run(scope)))
    return Typed(BOOL, lambda scope: not same(left.run(scope), right.run(scope)))


def _compared_as(left: Type, right: Type) -> Type:
    """The left list's type decides how lists are compared."""
    both = types.joined(left, right) or DYN
    if isinstance(both, ListOf) and isinstance(left, ListOf):
        return ListOf(both.items, left.listed, left.keys)
    return both


def _contained(item: Typed, target: Typed) -> Typed:
    match target.type:
        case ListOf(items=inner):
            if not types.comparable(item.type, inner):
                raise parts.no_overload("in", [item, target])
            if types.has_opaque(inner):
                raise not_here("comparing durations, dates or bytes")
            read, same = reader(inner), equality(inner)

            def run(scope: Scope) -> bool:
                wanted, found = item.run(scope), target.run(scope)
                if not isinstance(found, list):
                    raise Failed("no such overload")
                return any(same(wanted, read(each)) for each in found)

            return Typed(BOOL, run)
        case MapOf() if item.type in (TEXT, DYN):
            return Typed(BOOL, lambda scope: (key := item.run(scope)) in parts.mapping(target.run(scope), key))
    raise parts.no_overload("in", [item, target])


def _kind_of(value: Typed) -> Typed:
    """The function `type`; only for DYN, because other types are known without it."""
    if value.type is not DYN:
        raise not_here("type() of anything but an int-or-string")

    def run(scope: Scope) -> ValueKind:
        found = type_of(value.run(scope))
        if found is None:
            raise Failed("no such overload")
        return ValueKind(str(found))

    return Typed(types.TYPE, run)


def _method(name: str, given: list[Typed]) -> Typed:
    target, *arguments = given
    match target.type:
        case OptionalOf():
            return parts.of_optional(name, target, arguments)
        case ListOf() | MapOf() if name == "size" and not arguments:
            return _size(target)
        case ListOf(items=inner) if name == "join" and inner == TEXT and len(arguments) <= 1:
            return _joined_texts(target, arguments)
    if name not in functions.METHODS:
        raise functions.unknown(name)
    return _applied(name, functions.METHODS[name], given)


def _joined_texts(target: Typed, arguments: list[Typed]) -> Typed:
    if any(each.type != TEXT for each in arguments):
        raise parts.no_overload("join", [target, *arguments])
    read = reader(TEXT)

    def run(scope: Scope) -> str:
        between = arguments[0].run(scope) if arguments else ""
        found = [read(each) for each in target.run(scope) or ()]
        if between is None or None in found:
            raise Failed("no such overload")
        return str(between.join(found))

    return Typed(TEXT, run)


def _size(value: Typed) -> Typed:
    def run(scope: Scope) -> int:
        found = value.run(scope)
        if found is None:
            raise Failed("no such overload")
        return len(found)

    return Typed(INT, run)


def _function(name: str, given: list[Typed]) -> Typed:
    if name == "size" and len(given) == 1 and isinstance(given[0].type, ListOf | MapOf):
        return _size(given[0])
    if name == "+" and all(isinstance(each.type, ListOf) for each in given):
        return _lists_together(*given)
    if name not in functions.FUNCTIONS:
        raise functions.unknown(name)
    return _applied(name, functions.FUNCTIONS[name], given)


def _lists_together(left: Typed, right: Typed) -> Typed:
    both = types.joined(left.type, right.type)
    if both is None:
        raise parts.no_overload("+", [left, right])
    if any(isinstance(each.type, ListOf) and each.type.listed != "atomic" for each in (left, right)):
        raise not_here("adding to a list of the type set or map")

    def run(scope: Scope) -> list[Any]:
        one, other = left.run(scope), right.run(scope)
        if one is None or other is None:
            raise Failed("no such overload")
        return [*one, *other]

    return Typed(both, run)


def _applied(name: str, overloads: tuple[functions.Overload, ...], given: list[Typed]) -> Typed:
    """Selects the overload by the types, or at run time if DYN leaves several."""
    found = functions.fitting(overloads, tuple(each.type for each in given))
    if not found:
        if any(functions.elsewhere(name, each.type) for each in given):
            raise not_here(f"{name} of {' and '.join(str(each.type) for each in given)}")
        raise parts.no_overload(name, given)
    runs = [each.run for each in given]
    results = {each.result for each in found}
    if len(found) == 1:
        (only,) = found
        call, parameters = only.run, only.parameters
        sure = all(each.type is not DYN for each in given)

        def run(scope: Scope) -> Any:
            values = [each(scope) for each in runs]
            if None in values or (not sure and tuple(map(type_of, values)) != parameters):
                raise Failed("no such overload")
            return call(*values)

        return Typed(only.result, run)

    def chosen(scope: Scope) -> Any:
        values = [each(scope) for each in runs]
        fitting = functions.fitting(tuple(found), tuple(map(type_of, values)))
        if not fitting:
            raise Failed("no such overload")
        return fitting[0].run(*values)

    return Typed(results.pop() if len(results) == 1 else DYN, chosen)
