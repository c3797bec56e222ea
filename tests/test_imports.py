"""What the import contracts of pyproject.toml cannot say: no module needs itself."""

import grimp


def _cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, however far round: strongly connected, by Kosaraju."""
    order: list[str] = []
    seen: set[str] = set()
    importers: dict[str, set[str]] = {module: set() for module in imports}
    for module, imported in imports.items():
        for other in imported:
            importers[other].add(module)

    def walk(start: str, edges: dict[str, set[str]], found: list[str]) -> None:
        stack = [(start, iter(sorted(edges[start])))]
        seen.add(start)
        while stack:
            module, rest = stack[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    stack.append((other, iter(sorted(edges[other]))))
                    break
            else:
                stack.pop()
                found.append(module)

    for module in sorted(imports):
        if module not in seen:
            walk(module, imports, order)
    seen.clear()
    cycles = []
    for module in reversed(order):
        if module not in seen:
            component: list[str] = []
            walk(module, importers, component)
            if len(component) > 1:
                cycles.append(sorted(component))
    return cycles


def test_a_cycle_is_found() -> None:
    assert _cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_no_module_imports_itself_by_way_of_others_not_even_for_its_types() -> None:
    graph = grimp.build_graph("millstream", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert _cycles(imports) == []
