"""No source file can execute what it reads; checked in syntax trees, not by text."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "joblib.load", "yaml.load",
    "yaml.unsafe_load", "pd.read_pickle", "pandas.read_pickle", "torch.jit.load",
}  # fmt: skip


def dotted(node):
    """Return ``a.b.c`` of a name or attribute, and an empty string for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_true(call, keyword):
    given = {each.arg: each.value for each in call.keywords}.get(keyword)
    return isinstance(given, ast.Constant) and given.value is True


def modules(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.module == "pickle" and {alias.name for alias in node.names} == {"Pickler"}:
            return []  # it writes, and reads nothing
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def offences(text):
    """Yield what could execute the content of a file, or a string."""
    for node in ast.walk(ast.parse(text)):
        for name in modules(node):
            if name.partition(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS:
                yield f"line {node.lineno}: import of {name}"
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if name in FORBIDDEN_CALLS:
            yield f"line {node.lineno}: {name}()"
        if name == "torch.load" and not is_true(node, "weights_only"):
            yield f"line {node.lineno}: torch.load without weights_only=True"
        if name.rpartition(".")[2] in ("load", "read_array") and is_true(node, "allow_pickle"):
            yield f"line {node.lineno}: arrays with pickles"
        if is_true(node, "shell"):
            yield f"line {node.lineno}: a shell"


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from pickle import loads", "from pickle import Pickler, loads",
        "import dill as d", "from joblib import load",
        "import joblib\njoblib.load(x)", "torch.load(x)", "torch.load(x, weights_only=False)",
        "np.load(x, allow_pickle=True)", "eval(x)", "exec(x)", "yaml.load(x)", "os.system(x)",
        "subprocess.run(x, shell=True)", "def f():\n    import marshal", "import shelve",
    ],
)  # fmt: skip
def test_each_offence_is_seen(text):
    assert list(offences(text))


@pytest.mark.parametrize(
    "text",
    [
        "torch.load(x, weights_only=True)", "np.load(x, allow_pickle=False)", "model.eval()",
        "json.load(x)", "from pickle import Pickler", "re.compile(x)", "'import pickle'", "# eval(x)",
    ],
)  # fmt: skip
def test_what_only_looks_like_one_is_not(text):
    assert not list(offences(text))


def test_no_source_file_can_execute_what_it_reads():
    # Contract tests unpickle what they have just pickled.
    files = [p for p in sorted(SOURCE.rglob("*.py")) if p.parent.name != "testing"]
    assert len(files) > 50
    found = [f"{path}: {each}" for path in files for each in offences(path.read_text("utf-8"))]
    assert found == []
