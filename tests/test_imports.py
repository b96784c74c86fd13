"""No module imports itself by way of others, imports inside functions and for type checking counted."""

from graphlib import TopologicalSorter

import grimp


def test_there_are_no_cycles() -> None:
    graph = grimp.build_graph("slmsearch", "tasks", "flows", include_external_packages=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 200
    TopologicalSorter(imports).prepare()  # CycleError names the modules
