"""Descriptions of fields, from the docstrings under them.

Read from the source when the CRD or the reference page is made, and not at import as pydantic's
`use_attribute_docstrings` would: a server that starts needn't pay for it.
"""

import ast
import inspect
import itertools
import textwrap

from pydantic import BaseModel


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The docstring under each of a model's fields, on one line, by the field's Python name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef))
    texts = {}
    for statement, after in itertools.pairwise(body):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[statement.target.id] = " ".join(str(after.value.value).split())
    return texts


def model_text(model: type[BaseModel]) -> str:
    """A model's own docstring on one line."""
    return " ".join((model.__doc__ or "").split())
