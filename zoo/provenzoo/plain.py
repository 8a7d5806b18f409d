"""Plain data: strict YAML, JSON, merging, paths into nested mappings, digests, nearest names, whole files.

YAML is read by the rules of the 1.2 core schema: `010` is ten, `1:30`, `off` and `no` are text, and what is no plain
mapping, list or scalar (tags, anchors, duplicate keys) is an error that names its line.
"""

import contextlib
import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from provenzoo.errors import ZooError

DEEPEST = 40
"""The levels of nesting that plain data may have."""

# --- YAML ---------------------------------------------------------------------------------------------------------

_CORE = {  # YAML 1.2.2, section 10.3.2
    "tag:yaml.org,2002:null": re.compile(r"^(?:~|null|Null|NULL|)$"),
    "tag:yaml.org,2002:bool": re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    "tag:yaml.org,2002:int": re.compile(
        r"^(?:[-+]?[0-9]{1,400}|0o[0-7]{1,400}|0x[0-9a-fA-F]{1,400})$"
    ),  # else infinite
    "tag:yaml.org,2002:float": re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}


def scalar(text: str) -> Any:
    """The value of a plain scalar by the 1.2 core schema; text where nothing else fits."""
    kind = next((tag for tag, pattern in _CORE.items() if pattern.match(text)), "str")
    match kind.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        case "float":
            return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").replace(".n", "n"))
        case _:
            return text


class _Loader(yaml.SafeLoader):
    """SafeLoader without its 1.1 resolvers; composes nodes, which `_plain` turns into data."""

    yaml_implicit_resolvers: dict = {}


def _plain(node: yaml.Node, where: str) -> Any:
    at = f"{where}, line {node.start_mark.line + 1}"
    if isinstance(node, yaml.ScalarNode):
        if node.tag != "tag:yaml.org,2002:str":
            raise ZooError(f"{at}: the tag {node.tag!r} is not allowed; write plain values")
        return scalar(node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_plain(item, where) for item in node.value]
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        result: dict = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ZooError(f"{at}: a key must be a word, not a mapping or list")
            if key_node.value in result:
                raise ZooError(
                    f"{where}, line {key_node.start_mark.line + 1}: the key {key_node.value!r} is there twice"
                )
            result[key_node.value] = _plain(value_node, where)
        return result
    raise ZooError(f"{at}: the tag {node.tag!r} is not allowed; write plain values")


def parse_yaml(text: str, where: str) -> Any:
    """Plain data of one YAML document. `where` names the source in errors. Keys are always text."""
    try:
        for token in yaml.scan(text):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
                line = token.start_mark.line + 1
                raise ZooError(f"{where}, line {line}: anchors and aliases are not allowed; use ${{path}}")
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ZooError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ZooError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ZooError(f"{where}: nested deeper than {DEEPEST} levels") from None
    return None if node is None else _plain(node, where)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; an empty file or another kind of document is an error."""
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise ZooError(f"{path}: not a UTF-8 text file") from None
    except OSError as error:
        raise ZooError(f"{path}: cannot be read ({error.strerror})") from None
    if not isinstance(data, dict):
        raise ZooError(f"{path}: holds {kind_of(data)}; a mapping of keys to values is needed")
    return data


class _Dumper(yaml.SafeDumper):
    """Quotes text that the strict reader, or a YAML 1.1 one, would take for something else."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    looks_typed = not isinstance(scalar(text), str) or re.match(r"^[-+.0-9~]", text) is not None
    is_odd = any(not (character.isprintable() or character == "\n") for character in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if looks_typed or is_odd else None)


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = ".nan" if math.isnan(value) else repr(value).replace("inf", ".inf")
    text = text.replace("e", ".0e") if "e" in text and "." not in text else text  # as YAML 1.1 readers need it
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(float, _represent_float)
_Dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]  # PyYAML's documented switch


def dump_yaml(data: Any) -> str:
    """YAML text in the written order that `parse_yaml` reads back to equal data."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)


def plain_data(data: Any, where: str, path: tuple[str, ...] = ()) -> Any:
    """The data with text as keys and lists for tuples; what is not plain and finite is an error that names its path."""
    at = ".".join((where, *path))
    if len(path) > DEEPEST:
        raise ZooError(f"{where}.{path[0]}: nested deeper than {DEEPEST} levels")
    if isinstance(data, Mapping):
        if wrong := [key for key in data if not isinstance(key, str | int | float)]:
            raise ZooError(f"{at}: the key {wrong[0]!r} is {kind_of(wrong[0])}; text is needed")
        return {str(key): plain_data(value, where, (*path, str(key))) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain_data(item, where, (*path, str(i))) for i, item in enumerate(data)]
    if isinstance(data, float) and not math.isfinite(data):
        raise ZooError(f"{at}: {data} is no finite number")
    if isinstance(data, str) and any("\ud800" <= character <= "\udfff" for character in data):
        raise ZooError(f"{at}: {shortened(repr(data))} is no text in UTF-8")
    if type(data) not in (str, int, float, bool, type(None)):
        raise ZooError(f"{at}: {type(data).__name__} is no plain value; give text, a number, a list or a mapping")
    return data


def kind_of(value: Any) -> str:
    """The kind of a plain value in a reader's words."""
    names = {
        dict: "a mapping",
        list: "a list",
        str: "text",
        bool: "true/false",
        int: "a whole number",
        float: "a number",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def shortened(text: str, most: int = 80) -> str:
    """The text, cut in its middle where it is longer than a line can hold."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 4 :]}"


# --- names and digests --------------------------------------------------------------------------------------------


def nearest(word: str, names: Iterable[str], n: int = 3) -> list[str]:
    """Up to `n` of the names that are close to the word, best first."""
    names = list(dict.fromkeys(names))
    folded = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), folded, n=n, cutoff=0.6)
    inside = [
        name for name in names if len(word) > 2 and (word.lower() in name.lower() or name.lower() in word.lower())
    ]
    return list(dict.fromkeys([folded[name] for name in close] + inside))[:n]


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean 'a' or 'b'?`, the few names there are, or nothing."""
    names = list(names)
    if close := nearest(word, names):
        return f"; did you mean {' or '.join(repr(name) for name in close)}?"
    return f"; there are: {', '.join(names)}" if 0 < len(names) <= 12 else ""


def canonical(data: Any) -> str:
    """JSON with sorted keys and no spaces: equal data, equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(data: Any) -> str:
    """SHA-256 of plain data, 64 hex digits."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()


# --- merging ------------------------------------------------------------------------------------------------------


def merge(
    base: Any,
    child: Any,
    path: tuple[str, ...] = (),
    later: Callable[[tuple[str, ...]], bool] = lambda _: False,
) -> Any:
    """`child` laid over `base`: mappings merge at every depth, everything else replaces.

    A `name:` or `stage:` that names another component replaces its node, `key+: [x]` extends a list, and `null` removes
    an inherited key. Where nothing is inherited, null is an error, except on a path that is an overlay to be applied
    `later`: there it is kept, as is `key+`. The inputs are left as they are.
    """
    if not isinstance(child, Mapping):
        return [merge({}, item, path, later) for item in child] if isinstance(child, list) else child
    if isinstance(base, str) and base.startswith("${") and "name" not in child:
        raise ZooError(f"{'.'.join(path)}: is a copy of {base}; change that, or give a whole mapping with its `name`")
    if not isinstance(base, Mapping) or _is_another(base, child, path):
        base = {}
    result = dict(base)
    for key, value in child.items():
        here = (*path, key)
        if value is None:
            _remove(result, key, here, later(here))
        elif key.endswith("+"):
            _extend(result, key, merge([], value, here, later), here, later(here))
        else:
            result[key] = merge(result.get(key, {}), value, here, later)
    return result


def _is_another(base: Mapping, child: Mapping, path: tuple[str, ...]) -> bool:
    """Whether the child names another component. A figure's `stage` is only where it looks."""
    keys = ("name",) if path[:1] == ("figures",) else ("name", "stage")
    pairs = [(base.get(key), child.get(key)) for key in keys]
    return any(isinstance(old, str) and isinstance(new, str) and old != new for old, new in pairs)


def _remove(result: dict, key: str, path: tuple[str, ...], later: bool) -> None:
    if key in result:
        del result[key]
    elif later:
        result[key] = None
    else:
        raise ZooError(
            f"{'.'.join(path)}: null removes an inherited key and there is none; write {{}} for an empty one"
        )


def _extend(result: dict, key: str, value: Any, path: tuple[str, ...], later: bool) -> None:
    name = key.removesuffix("+")
    target = key if later and name not in result else name
    inherited = result.get(target, [])
    for side in (inherited, value):
        if not isinstance(side, list):
            raise ZooError(f"{'.'.join(path)}: extends a list, but there is {kind_of(side)}")
    result[target] = [*inherited, *value]


def walk(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every (dotted path, value) below a nested mapping, parents before children."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            here = f"{path}.{key}" if path else str(key)
            yield here, value
            yield from walk(value, here)


def split_path(data: Any, path: str) -> list[str]:
    """The keys of a dotted path, where the longest key that exists is taken (`grid.data.samples`)."""
    keys: list[str] = []
    rest = path.split(".")
    while rest:
        here = data if isinstance(data, Mapping) else {}
        size = next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in here), 1)
        key, rest = ".".join(rest[:size]), rest[size:]
        keys.append(key)
        data = here.get(key)
    return keys


def nested(keys: list[str], value: Any) -> Any:
    """`{a: {b: value}}` of keys `[a, b]`."""
    for key in reversed(keys):
        value = {key: value}
    return value


# --- files --------------------------------------------------------------------------------------------------------


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file that appears whole or not at all: beside, fsync, rename."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ZooError(
            f"{path}: cannot be written ({error.strerror}); free space there or choose another folder"
        ) from None


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder last through a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, whole or not at all; NaN and infinity are errors."""
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The data of a JSON file; an error names the file."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ZooError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ZooError(f"{path}: not valid JSON ({error})") from None
