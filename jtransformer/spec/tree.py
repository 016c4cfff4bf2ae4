"""Specs as nested dicts, both ways: the form of JSON files and config files.

A choice with settings of its own is `{"kind": K, K: {its settings}}`. A config file shows the
settings of the other kinds too, so that each can be chosen from the command line; they are not
read, and one that was changed is refused, because it would do nothing.
"""

import dataclasses
from typing import Any

from jtransformer.spec.errors import SpecError, nearest
from jtransformer.spec.fields import hints, is_spec, kinds
from jtransformer.spec.run import RunSpec

Tree = dict[str, Any]
"""A spec as JSON has it: mappings of names to values and to further mappings."""


def to_tree(spec: Any, *, all_kinds: bool = False) -> Tree:
    """Writes a spec as nested dicts, every field included.

    Args:
        spec: Any spec.
        all_kinds: Whether to show the settings of kinds that are not chosen, at their defaults.
    """
    tree: Tree = {}
    for name, hint in hints(type(spec)).items():
        value = getattr(spec, name)
        options = kinds(hint)
        if options:
            tree[name] = {"kind": value.kind}
            for kind, cls in options.items():
                if dataclasses.fields(cls) and (all_kinds or kind == value.kind):
                    chosen = value if kind == value.kind else cls()
                    tree[name][kind] = to_tree(chosen, all_kinds=all_kinds)
        elif dataclasses.is_dataclass(value):
            tree[name] = to_tree(value, all_kinds=all_kinds)
        else:
            tree[name] = list(value) if isinstance(value, tuple) else value
    return tree


def from_tree(
    tree: Tree,
    *,
    touched: frozenset[str] = frozenset(),
    inherited: frozenset[str] = frozenset(),
) -> RunSpec:
    """Reads a run from nested dicts, strictly.

    Args:
        tree: As `to_tree` writes it; a missing field takes its default.
        touched: Dotted paths that the user set by hand; they must not lie in a kind that is not
            chosen, even at their default value.
        inherited: Dotted paths whose values came with a preset: those may lie there.

    Raises:
        SpecError: For the first unknown name, wrong type, value outside its set, unread setting
            or broken rule.
    """
    spec = _read(RunSpec, tree)
    unread = sorted(unread_settings(tree, touched=touched, inherited=inherited))
    if unread:
        raise unread_error(tree, unread[0])
    return spec


def unread_settings(
    tree: Tree,
    *,
    touched: frozenset[str] = frozenset(),
    inherited: frozenset[str] = frozenset(),
) -> set[str]:
    """Returns the dotted paths of settings that belong to a kind that is not chosen.

    A setting at its default counts only if it is among `touched`; so does one that is among
    `inherited`.

    Raises:
        SpecError: If such a kind has no setting of that name.
    """
    found = _unread(RunSpec, tree, "", touched)
    return {path for path in found if path in touched or path not in inherited}


def unread_error(tree: Tree, path: str) -> SpecError:
    """Says why a setting would do nothing."""
    names = path.split(".")
    # The outermost choice that does not read the setting is the one to change.
    for depth in range(1, len(names)):
        choice, kind = ".".join(names[:depth]), names[depth]
        chosen = get(tree, choice).get("kind", kind)
        if chosen != kind and kind != "kind":
            return SpecError(
                path,
                f"= {get(tree, path)!r} would do nothing, because {choice}.kind is {chosen!r}; "
                f"set {choice}.kind to {kind!r} or leave it out.",
            )
    raise AssertionError(f"{path} is read")


def prune(tree: Tree) -> Tree:
    """Returns the tree without the settings of kinds that are not chosen."""
    return _prune(RunSpec, tree)


def get(tree: Tree, path: str) -> Any:
    """Returns the value at a dotted path.

    Raises:
        SpecError: If there is no such setting; the nearest name is offered.
    """
    node: Any = tree
    for depth, name in enumerate(path.split(".")):
        if not isinstance(node, dict) or name not in node:
            above = ".".join(path.split(".")[:depth])
            if not isinstance(node, dict):
                raise SpecError(path, f"is not a setting; {above} has a value, not parts.")
            here = f"{above}.{name}" if above else name or repr(path)
            raise SpecError(here, f"is not a setting; {nearest(name, node)}.")
        node = node[name]
    return node


def replace(tree: Tree, changes: dict[str, Any]) -> Tree:
    """Returns a copy with the values at dotted paths replaced; every path must exist."""
    copy = _copy(tree)
    for path, value in changes.items():
        if isinstance(get(copy, path), dict):
            raise SpecError(path, f"is a group of settings, not one; name one of its fields: "
                            f"{', '.join(get(copy, path))}.")  # fmt: skip
        parent, _, name = path.rpartition(".")
        (get(copy, parent) if parent else copy)[name] = value
    return copy


def differences(a: Tree, b: Tree, prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Returns the dotted paths at which two trees differ, with both values (None: absent)."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*a, *b]):
        left, right = a.get(name), b.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            found.update(differences(left, right, f"{prefix}{name}."))
        elif left != right or type(left) is not type(right):
            found[prefix + name] = (left, right)
    return found


def _copy(tree: Tree) -> Tree:
    # Values are kept as they are, whatever they are: `from_tree` judges them.
    return {key: _copy(item) if isinstance(item, dict) else item for key, item in tree.items()}


def _check_names(cls: type, tree: Any) -> dict[str, Any]:
    """Returns the hints of the class, once the tree has no other names than they."""
    if not isinstance(tree, dict):
        raise SpecError("", f"must hold the settings of {cls.__name__}, got {tree!r}.")
    known = hints(cls)
    for name in tree:
        if name not in known:
            raise SpecError(str(name), f"is not a setting; {nearest(str(name), known)}.")
    return known


def _read(cls: type, tree: Any) -> Any:
    known, values = _check_names(cls, tree), {}
    for name, value in tree.items():
        hint = known[name]
        try:
            if kinds(hint):
                values[name] = _read_choice(kinds(hint), value)
            elif is_spec(hint):
                values[name] = _read(hint, value)
            else:
                values[name] = value
        except SpecError as error:
            raise error.inside(name) from None
    return cls(**values)


def _check_groups(cls: type, tree: Any) -> None:
    """Checks the names, not the values, of settings that are not read."""
    known = _check_names(cls, tree)
    for name, value in tree.items():
        options = kinds(known[name])
        try:
            if options:
                _kind_of(options, value)
                for kind in options.keys() & value.keys():
                    try:
                        _check_groups(options[kind], value[kind])
                    except SpecError as error:
                        raise error.inside(kind) from None
            elif is_spec(known[name]):
                _check_groups(known[name], value)
        except SpecError as error:
            raise error.inside(name) from None


def _kind_of(options: dict[str, type], tree: Any) -> str:
    """Returns the kind that a choice names, once it has no other names than kinds."""
    if not isinstance(tree, dict):
        raise SpecError("", f"must hold a kind and its settings, got {tree!r}.")
    if "kind" not in tree:
        raise SpecError("kind", f"is missing; allowed: {', '.join(sorted(options))}.")
    kind = tree["kind"]
    if not isinstance(kind, str) or kind not in options:
        raise SpecError("kind", f"must be one of {', '.join(options)}, got {kind!r}.")
    for name in tree:
        if name != "kind" and name not in options:
            offer = nearest(str(name), ["kind", *options])
            raise SpecError(str(name), f"is not a setting; {offer}.")
    return kind


def _read_choice(options: dict[str, type], tree: Any) -> Any:
    kind = _kind_of(options, tree)
    try:
        return _read(options[kind], tree.get(kind, {}))
    except SpecError as error:
        raise error.inside(kind) from None


def _unread(cls: type, tree: Tree, prefix: str, touched: frozenset[str]):
    for name, hint in hints(cls).items():
        value, options = tree.get(name), kinds(hint)
        if options and isinstance(value, dict):
            for kind, option in options.items():
                if kind not in value:
                    continue
                if kind == value.get("kind"):
                    if isinstance(value[kind], dict):
                        inside = f"{prefix}{name}.{kind}."
                        yield from _unread(option, value[kind], inside, touched)
                    continue
                try:
                    _check_groups(option, value[kind])
                except SpecError as error:
                    raise error.inside(f"{prefix}{name}.{kind}") from None
                default = to_tree(option(), all_kinds=True)
                yield from _changed(value[kind], default, f"{prefix}{name}.{kind}.", touched)
        elif is_spec(hint) and isinstance(value, dict):
            yield from _unread(hint, value, f"{prefix}{name}.", touched)


def _changed(tree: Tree, default: Tree, prefix: str, touched: frozenset[str]):
    """Yields the paths of a kind that is not chosen which are not at their default."""
    for name, setting in tree.items():
        path, usual = prefix + name, default.get(name)
        if isinstance(setting, dict) and isinstance(usual, dict):
            yield from _changed(setting, usual, f"{path}.", touched)
        elif path in touched or setting != usual:
            yield path


def _prune(cls: type, tree: Tree) -> Tree:
    known, pruned = hints(cls), {}
    for name, value in tree.items():
        hint = known.get(name, object)
        options = kinds(hint)
        if options and isinstance(value, dict):
            chosen = value.get("kind")
            # Unknown names stay, to be refused by `from_tree`.
            pruned[name] = {
                key: _prune(options[key], item)
                if key in options and isinstance(item, dict)
                else item
                for key, item in value.items()
                if key not in options or key == chosen
            }
        elif is_spec(hint) and isinstance(value, dict):
            pruned[name] = _prune(hint, value)
        else:
            pruned[name] = value
    return pruned
