"""Comprehensions: the macros that run over lists, and over the keys of maps, with a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubesim.apiserver.cel.running import Run, Scope, Typed, absorbing, step
from kubesim.apiserver.cel.syntax import Call, Name, Refused, Tree, not_here
from kubesim.apiserver.cel.types import BOOL, DYN, TEXT, ListOf, MapOf, OptionalOf, Type, known
from kubesim.apiserver.cel.values import Failed, Optional, reader

MACROS = frozenset(("all", "exists", "exists_one", "map", "filter", "optMap", "optFlatMap"))

Check = Callable[[Tree, Mapping[str, Type]], Typed]


def typed(call: Call, target: Typed, names: Mapping[str, Type], check: Check) -> Typed:
    """Raises Refused."""
    if call.name in ("optMap", "optFlatMap"):
        return _of_optional(call, target, names, check)
    if len(call.arguments) not in ((2, 3) if call.name == "map" else (2,)):
        raise not_here(f"{call.name} with {len(call.arguments)} arguments")
    variable = _variable(call)
    match target.type:
        case ListOf(items=items):
            inner = known(items)
        case MapOf():
            inner = TEXT
        case _:
            raise Refused(f"expression of type '{target.type}' cannot be range of a comprehension")
    bodies = [check(body, {**names, variable: inner}) for body in call.arguments[1:]]
    conditions = bodies[:-1] if call.name == "map" else bodies
    if any(each.type not in (BOOL, DYN) for each in conditions):
        raise Refused(f"found no matching overload for '{call.name}' applied to '({bodies[0].type})'")
    scopes = _scopes(target.run, inner, variable)
    body = bodies[-1].run
    if call.name == "map":
        return Typed(ListOf(bodies[-1].type), _mapped(scopes, bodies[0].run if len(bodies) == 2 else None, body))
    if call.name == "filter":
        return Typed(ListOf(inner), lambda scope: [item for item, inside in scopes(scope) if _true(body(inside))])
    if call.name in ("all", "exists"):
        decides = call.name == "exists"

        def run(scope: Scope) -> bool:
            judged = ((body, inside) for _, inside in scopes(scope))
            return absorbing(judged, decides=decides)

        return Typed(BOOL, run)
    return Typed(BOOL, lambda scope: sum([_true(body(inside)) for _, inside in scopes(scope)]) == 1)


def _variable(call: Call) -> str:
    if not isinstance(call.arguments[0], Name):
        raise Refused("argument must be a simple name")
    return call.arguments[0].name


def _scopes(target: Run, inner: Type, variable: str) -> Callable[[Scope], Iterator[tuple[Any, Scope]]]:
    read = reader(inner)

    def scopes(scope: Scope) -> Iterator[tuple[Any, Scope]]:
        items = target(scope)
        if not isinstance(items, list | dict):
            raise Failed("no such overload")
        for each in items:
            step(scope)
            item = read(each)
            yield item, {**scope, variable: item}

    return scopes


def _true(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Failed("no such overload")
    return value


def _mapped(scopes: Callable[[Scope], Iterator[tuple[Any, Scope]]], condition: Run | None, body: Run) -> Run:
    if condition is None:
        return lambda scope: [body(inside) for _, inside in scopes(scope)]
    return lambda scope: [body(inside) for _, inside in scopes(scope) if _true(condition(inside))]


def _of_optional(call: Call, target: Typed, names: Mapping[str, Type], check: Check) -> Typed:
    if not isinstance(target.type, OptionalOf) or len(call.arguments) != 2:
        raise Refused(f"found no matching overload for '{call.name}' applied to '({target.type})'")
    variable = _variable(call)
    body = check(call.arguments[1], {**names, variable: target.type.of})
    flat = call.name == "optFlatMap"
    if flat and not isinstance(body.type, OptionalOf):
        raise Refused(f"found no matching overload for 'optFlatMap' applied to '({body.type})'")

    def run(scope: Scope) -> Any:
        found = target.run(scope)
        if not found.there:
            return Optional()
        value = body.run({**scope, variable: found.value})
        return value if flat else Optional(value, there=True)

    return Typed(body.type if flat else OptionalOf(body.type), run)
